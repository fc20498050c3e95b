"""Many workers behind one endpoint, on one machine or many: placed and kept alive by Ray Serve."""

__version__ = "0.1.0"
