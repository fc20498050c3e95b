"""How this process takes memory and computes."""
