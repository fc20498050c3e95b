"""What the way through a fleet costs."""
