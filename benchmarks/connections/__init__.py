"""What slow, idle, leaving and very many clients do to a worker and to the others."""
