"""The N-th operation fails, for every N until a clean run, once and for good.

block      shared memory: which call fails, when, how often
shim       fails the system's calls, loaded before the C library (shim.c)
worker     a worker with all seams in place, whose faults are switched while it runs
scenario   what clients ask of it meanwhile, and what they may get
seams      all seams, and how often each is tried
"""
