"""Which tokens may come next, so that a text matches a constraint: by llguidance."""
