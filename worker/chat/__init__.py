"""Messages to a prompt, by the model file's own template."""
