"""What several APIs have: bodies, sampling, constraints, chats, answers, errors."""
