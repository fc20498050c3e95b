"""Typed questions about a state, answered with probabilities."""
