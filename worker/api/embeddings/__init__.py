"""Vectors of texts, and how well texts match a question."""
