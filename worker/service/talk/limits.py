"""How much a conversation may hold."""

from __future__ import annotations

MAX_MESSAGES = 4096
MAX_TOOLS = 1024
