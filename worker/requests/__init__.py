"""The requests that generate: who they are, how far, how they ended; and their cancellation."""
