"""The model that comes with the package, and text that it was not trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MODEL_PATH: Final[Path] = Path(__file__).parent / "demo-5m-f16.gguf"
"""A small Llama model in F16; see CARD.md."""

HELDOUT_PATH: Final[Path] = Path(__file__).parent / "heldout.txt"
"""Documents that the model was not trained on, in UTF-8, with an empty line between them."""
