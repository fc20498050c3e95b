"""From spawn to ready, beside llama-server."""
