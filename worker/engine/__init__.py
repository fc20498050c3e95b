"""Deciding what runs next: pure Python, no clock, no thread, no asyncio (but `thread.py`)."""
