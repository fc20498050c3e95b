"""Processes that are killed, interrupted or die of native code: writers of the cache in the middle
of a file, workers, `worker bench`, `pull` and `quantize`, and `make test`'s own.

killing    starts writers and kills them
"""
