"""What the API is: OpenAPI at /openapi.json, and the same to read at /docs."""
