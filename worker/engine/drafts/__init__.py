"""Guesses of the tokens that follow: where they come from, and which of them a step verifies."""
