"""The requests that run, for who watches them."""
