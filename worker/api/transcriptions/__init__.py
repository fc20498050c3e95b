"""OpenAI's /v1/audio: words of a sound, by a model that hears."""
