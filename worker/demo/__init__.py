"""The model that ships with the package, and text that it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MODEL_PATH: Final[Path] = Path(__file__).parent / "demo-5m-f16.gguf"
"""A small Llama model in F16; see CARD.md."""

HELDOUT_PATH: Final[Path] = Path(__file__).parent / "heldout.txt"
"""Held-out documents in UTF-8, parted by one empty line."""
