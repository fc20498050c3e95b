"""The GGUF file format, checked while it is read. No weights are read, no native code runs."""
