"""Lines of batches."""
