"""What a coding agent asks of a server, replayed: `python -m benchmarks.session --url URL`."""
