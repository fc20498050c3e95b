"""Text to tokens and back, as llama-server and vLLM name it."""
