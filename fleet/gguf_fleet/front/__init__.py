"""The fleet's endpoint: who a request is for, and the way there and back."""
