"""What the KV cache holds: slots, cells, layouts, shared prefixes, states that come and go."""
