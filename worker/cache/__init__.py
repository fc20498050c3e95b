"""Sequences that do not run: their states in host memory and on disk."""
