"""Whether the installed llama.cpp computes rightly on this CPU: what is known, and asked for."""
