"""Processes that are killed: writers of the cache in the middle of a file, and `make test`'s own.

killing    starts writers and kills them
"""
