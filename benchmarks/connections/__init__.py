"""What slow, idle and leaving clients do to a worker and to the others."""
