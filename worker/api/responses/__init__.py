"""The OpenAI Responses API, with a bounded store in memory."""
