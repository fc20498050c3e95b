"""Ollama's API, for clients that know no other."""
