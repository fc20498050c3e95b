"""Suites of other projects, run over our worker: `make suites`. Nothing of theirs is kept here."""
