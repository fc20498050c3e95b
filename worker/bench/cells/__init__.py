"""Types of KV cells beside each other: what they cost in quality, speed and memory."""
