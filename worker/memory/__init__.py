"""How much memory a model will take, and what fits this machine."""
