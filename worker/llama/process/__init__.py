"""How this process imports, takes memory and computes."""
