"""One owner for the worker's life: load, ready, drain, stop."""
