"""worker/api/batches/."""
