"""What slots hold, copied out of a context and back."""
