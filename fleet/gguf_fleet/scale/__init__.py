"""How many replicas a model has: from what its workers have to do to a number for Ray."""
