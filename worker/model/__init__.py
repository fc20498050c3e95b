"""What a GGUF file says about its model. No weights are read, no native code runs."""
