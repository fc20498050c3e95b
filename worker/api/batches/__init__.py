"""OpenAI's files and batches: many requests in a file, answered in what streams leave free."""
