"""Damaged model files by the thousand, each judged as `serve` judges it, then run.

corpus     sound files that are damaged: each architecture, tokenizer, encoding, split
mutators/  what is done to a file: its bytes, header, numbers, tokens, tensors, templates
mutant     a file and a list of steps; the same list gives the same bytes
judge      a child process that checks, loads and runs one file after the other
child      the child's side
finding    what must not happen, and the shortest list of steps for which it does
"""
