"""Deciding what runs next. Pure Python; only thread, outbox and stream know asyncio."""
