"""A GGUF worker: reads a quantised model file, runs it on llama.cpp, serves it."""

__version__ = "0.1.0"
