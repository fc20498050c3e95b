"""One step: how many rows it has, what it costs, what is chosen from its rows."""
