"""How the next token is chosen from a row of logits, without writing the whole row as candidates."""
