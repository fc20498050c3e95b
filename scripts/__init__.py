"""What is run from a checkout and is no part of the worker."""
