"""Jinja for templates that nobody has checked."""
