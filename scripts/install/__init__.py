"""Installs the worker into a virtual environment, with Python's standard library only."""
