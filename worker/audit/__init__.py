"""Model files judged before they are used: headers as the loader does, weights, checksums."""
