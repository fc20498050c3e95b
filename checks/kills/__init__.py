"""Processes that are killed: writers of the cache in the middle of a file, `worker bench`, and
`make test`'s own.

killing    starts writers and kills them
"""
