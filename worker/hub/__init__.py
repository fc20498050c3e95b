"""Where model files come from: names, the catalogue, the Hub, the cache on this machine."""
