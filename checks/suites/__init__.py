"""Suites of other projects, run over our worker: `make check SUITE=suites`. None is kept here."""
