"""A fleet of 1,000 workers that compute nothing: recorded costs, the real routing and scaling."""
