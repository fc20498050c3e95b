"""examples/pool_manager.py over the workers of tests/support/programs/slow.py."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[2] / "examples" / "pool_manager.py"
start = asyncio.create_subprocess_exec


async def start_slow(program: str, *words: str, **options: Any) -> asyncio.subprocess.Process:
    """Start a worker, but the slow one."""
    assert words[:3] == ("-m", "worker", "serve")
    return await start(program, "-m", "tests.support.programs.slow", *words[2:], **options)


asyncio.create_subprocess_exec = start_slow
runpy.run_path(str(EXAMPLE), run_name="__main__")
