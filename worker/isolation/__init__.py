"""What others can see of this process, and what it can reach."""
