"""worker check: whether model files are good."""
