"""Checks of a model file before native code sees it."""
