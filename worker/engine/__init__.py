"""Deciding what runs next. Pure Python; only `thread.py` and `stream.py` know asyncio and time."""
