"""Suites of other servers and clients, run over this worker: `make suites`."""
