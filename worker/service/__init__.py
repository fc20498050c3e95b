"""HTTP: existing OpenAI clients in front, the engine behind."""
