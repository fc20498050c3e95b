"""What a model will hold of this machine's memory, and what fits."""
