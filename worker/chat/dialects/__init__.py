"""How families of models write tool calls; a small module each."""
