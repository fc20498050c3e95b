"""The OpenAI Responses API, stateless: nothing is stored between requests."""
