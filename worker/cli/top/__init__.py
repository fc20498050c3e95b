"""worker top: what a running worker does, live."""
