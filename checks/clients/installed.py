"""Clients that `make check SUITE=clients` installed, run as programs of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
# Set by `make check SUITE=clients`.
VENV = os.environ.get("CLIENTS_VENV")
TIMEOUT_S = 300.0  # what a very busy machine may take for a run of seconds

needs_clients = pytest.mark.skipif(
    VENV is None, reason="`make check SUITE=clients` installs and runs them"
)


def interpreter(place: str = ".") -> Path:
    """Python in the environment at this place."""
    return Path(VENV or "") / place / "bin/python"


def node_modules() -> Path:
    """Where npm installed packages; the test is skipped if it did not."""
    folder = Path(VENV or "") / "node" / "node_modules"
    if not folder.is_dir():
        pytest.skip("npm could not install the packages")
    return folder


def run(*command: str | Path, cwd: Path | None = None, **env: str) -> str:
    """What a program prints. It knows no proxy and nobody's settings, and reads no input."""
    others = ("proxy", "anthropic", "claude", "codex")
    kept = {k: v for k, v in os.environ.items() if not any(word in k.lower() for word in others)}
    done = subprocess.run(
        list(map(str, command)),
        env={**kept, "OPENAI_API_KEY": "unused", **env},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
