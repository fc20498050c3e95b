"""Where model files come from: names, the catalogue, the Hub, the files that are here."""
