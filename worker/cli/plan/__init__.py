"""worker plan: what a model needs, for people and for programs."""
