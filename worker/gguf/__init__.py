"""The GGUF file format: what a file says, checked while it is read; no weights, no native code."""
