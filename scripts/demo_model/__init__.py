"""The parts of the demo model: its text, tokenizer, network, training and GGUF file."""
