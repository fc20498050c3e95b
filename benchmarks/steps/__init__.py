"""What is between two decodes, and beside them."""
