"""What drafters guess, beside llama-server with the same files."""
