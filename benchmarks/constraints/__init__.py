"""What constraints cost, and which schemas they hold."""
