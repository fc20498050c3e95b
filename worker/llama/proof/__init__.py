"""Whether the installed llama.cpp computes rightly on this CPU: shown before anybody relies on it.

`blocks` makes random weights in each encoding, `model` a tiny model of them and its right answers
in numpy, `child` compares llama.cpp with these in a process of its own, which `llama/soundness.py`
starts.
"""
