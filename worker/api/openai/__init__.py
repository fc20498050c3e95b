"""The OpenAI API: completions, chat and models."""
