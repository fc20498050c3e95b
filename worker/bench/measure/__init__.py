"""Speed, loading time and memory of one level, measured in a process of its own."""
