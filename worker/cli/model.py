"""Which file a command works on."""

from __future__ import annotations

from pathlib import Path

from worker.demo import MODEL_PATH
from worker.settings import Settings


def model_path(settings: Settings) -> Path:
    """The file that was named, or the embedded demo model."""
    return Path(settings.model) if settings.model else MODEL_PATH
