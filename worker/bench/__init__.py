"""Comparing quant levels on this machine: quality, speed, memory, and which one to take."""
