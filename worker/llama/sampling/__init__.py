"""How the next token is chosen from a row of logits, most often without a list of candidates."""
