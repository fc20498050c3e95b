"""The run: stages, one after the other, each in a child process."""
