"""A conversation to go on with, in one neutral form; each chat API is an adapter of it."""
