"""Dialects whose answers are messages, each with a header that says for whom it is."""
