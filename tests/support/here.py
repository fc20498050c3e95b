"""What this machine tests: the git-ignored `worker-test.toml`, or else what is found.

models = ["../models/tinyllama.Q4_K_M.gguf"]   # run through the acceptance list too
backends = ["cuda"]                            # tests marked so must run, not skip
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "worker-test.toml"
MARKS = ("cuda", "metal", "vulkan", "rpc", "mtmd")


@functools.cache
def _config() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text()) if FILE.exists() else {}


def extra_models() -> list[Path]:
    """GGUF files that the acceptance list runs on besides the demo model."""
    return [FILE.parent / name for name in _config().get("models", [])]


@functools.cache
def why_not(mark: str) -> str | None:
    """Why tests with this mark cannot run here, or None."""
    asked = _config().get("backends")
    if asked is not None:
        return None if mark in asked else f"worker-test.toml does not list {mark}"
    from worker.llama import library

    if mark == "mtmd":
        return None if library.reads_media() else "the installed build has no libmtmd"
    backends = {name.lower() for name in library.build().backends}
    names = {"metal": {"metal", "mtl"}}.get(mark, {mark})
    if not names & backends:
        return f"the installed build has no {mark} backend"
    if mark != "rpc" and not any(device.offloads for device in library.devices()):
        return "this machine has no device for it"
    return None
