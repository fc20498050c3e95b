"""Errors in the shapes that each API's clients read."""
