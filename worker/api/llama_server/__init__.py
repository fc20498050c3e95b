"""Infill as llama-server speaks it: editors that complete code know no other."""
