"""What must be true of a model file before native code sees it."""
