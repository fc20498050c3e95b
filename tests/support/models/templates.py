"""Chat templates of real models: those that the pinned llama.cpp's source ships.

    text("Qwen3-Coder")      the template of models/templates/Qwen3-Coder.jinja

The installer keeps them when it builds llama-cpp-python.
"""

from __future__ import annotations

from importlib.metadata import version

import pytest

from scripts.install.source import NAME, templates_folder

FOLDER = templates_folder(version(NAME))
WHY_NOT = f"llama.cpp's chat templates are not in {FOLDER}: `make test` brings them there"


def names() -> list[str]:
    """Of all templates, sorted; empty where there are none."""
    return sorted(path.stem for path in FOLDER.glob("*.jinja"))


def text(name: str) -> str:
    """One template. Skips the test where the folder is missing; a wrong name is an error."""
    if not FOLDER.exists():
        pytest.skip(WHY_NOT)
    return (FOLDER / f"{name}.jinja").read_text()
