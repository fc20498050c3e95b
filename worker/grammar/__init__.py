"""Schemas and grammars of clients, judged before native code follows them."""
