"""Pictures and sounds to vectors, in a process of its own."""
