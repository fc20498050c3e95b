"""Who may import whom, and where the outside world is met."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "worker"

# package -> the packages of ours that it may import
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "log": set(),
    "demo": set(),
    "machine": set(),
    "values": set(),
    "files": {"machine", "errors"},
    "options": {"values"},
    "settings": {"options", "values", "errors"},
    "gguf": {"errors"},
    "model": {"gguf", "errors"},
    "memory": {"model", "gguf", "settings", "machine", "errors"},
    "hub": {"model", "gguf", "settings", "files", "machine", "errors"},
    "engine": {"errors", "log"},
    "chat": {"errors"},
    "grammar": {"errors"},
    "llama": {"grammar", "engine", "memory", "model", "gguf", "files", "machine", "errors", "log"},
    "lifecycle": {
        "llama", "engine", "memory", "model", "settings", "machine", "errors", "log",
    },
    "service": {
        "lifecycle", "chat", "grammar", "engine", "model", "settings", "machine", "errors", "log",
    },
    "bench": {
        "lifecycle", "llama", "engine", "memory", "model", "gguf", "settings", "options", "files",
        "machine", "errors", "log",
    },
    "cli": {
        "service", "bench", "lifecycle", "llama", "engine", "hub", "memory", "model", "gguf",
        "settings", "options", "files", "machine", "errors", "log", "demo",
    },
}  # fmt: skip

# foreign module -> the packages that may import it
RESERVED: dict[str, set[str]] = {
    "llama_cpp": {"llama"},
    "ctypes": {"llama"},
    "huggingface_hub": {"hub"},
    "jinja2": {"chat", "bench"},
    "litestar": {"service"},
    "prometheus_client": {"service"},
    "uvicorn": {"service"},
    "rich": {"cli"},
    "asyncio": {"service", "lifecycle", "cli", "engine/thread.py"},
    "threading": {"llama", "lifecycle", "engine/thread.py", "chat/sandbox.py", "log.py"},
}


def imports_of(path: Path) -> set[str]:
    """Full dotted names of everything that a file imports, lazily or not."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_imports_point_down(path: Path) -> None:
    """A file imports its own package and those below; foreign modules stay in their room."""
    inside = path.relative_to(ROOT)
    package = inside.parts[0].removesuffix(".py")
    for name in imports_of(path):
        head, _, rest = name.partition(".")
        if head == "worker" and rest and package not in ("__init__", "__main__"):
            target = rest.split(".")[0]
            if target != "__version__":
                assert target == package or target in ALLOWED[package], f"imports {name}"
        if head in RESERVED:
            assert package in RESERVED[head] or inside.as_posix() in RESERVED[head], (
                f"imports {head}"
            )


def test_the_map_is_complete() -> None:
    """Every package has its rule, and no rule is for a package that is gone."""
    packages = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in FILES}
    assert packages - {"__init__", "__main__"} == set(ALLOWED)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_modules_are_small(path: Path) -> None:
    """No module grows over 400 lines."""
    assert len(path.read_text().splitlines()) <= 400
