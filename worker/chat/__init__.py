"""From messages to a prompt, by the model file's own template; and back, from text to events."""
