"""llama.cpp's quantiser, in a process of its own."""
