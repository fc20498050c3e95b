"""llama.cpp behind one wall: the only package that imports its bindings."""
