"""The worker beside llama-server and others, in one run: `python -m benchmarks.peers`.

Each peer is a process that we start on a free loopback port with the same model, threads, cells
and slots, and end by its pid. Per case the peers take turns, in a new order each round. Tables and
goals go to stdout, followed by one line of JSON. See README.md here for what is measured.
"""
