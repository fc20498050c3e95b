"""How many turns a request takes through the code, and how much hangs together with it."""
