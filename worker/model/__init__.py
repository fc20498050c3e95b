"""What a GGUF file says about its model; no weights, no native code."""
