"""Schemas and grammars that clients send, judged before native code follows them."""
