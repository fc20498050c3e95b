"""The architectures and sessions of the engine's own tests."""

from __future__ import annotations

from tests.llama.test_architectures import name, path, start, truth

__all__ = ["name", "path", "start", "truth"]
