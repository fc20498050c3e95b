"""What readers of a model's text are made of."""
