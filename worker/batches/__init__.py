"""Batches: many requests in a file of lines."""
