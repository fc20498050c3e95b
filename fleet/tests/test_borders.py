"""What the fleet may import: nothing of the worker, and of Ray what is public."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import gguf_fleet

TOP = Path(__file__).parent.parent
PACKAGE = TOP / "gguf_fleet"
# All that is used of Ray's private names, and the one module that does.
ADAPTER = "ray_private.py"
PRIVATE = {"_get_global_client", "_deployment_id", "_memory"}


def imported(path: Path) -> Iterator[str]:
    """Full dotted names of all that a file imports, at its top or inside of a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def private_names(path: Path) -> set[str]:
    """Names with an underscore that are somebody else's: imported, attributes of what is not
    `self` or a class here, keywords and keys of a call."""
    found = {name.rpartition(".")[2] for name in imported(path) if name.startswith("ray")}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg:
            found.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found |= set() if node.value.id in ("self", "cls", "os", "group") else {node.attr}
        elif path.name == ADAPTER and isinstance(node, ast.Dict):
            found |= {str(key.value) for key in node.keys if isinstance(key, ast.Constant)}
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def test_nothing_of_the_worker_is_imported() -> None:
    """It is asked by its command line and by HTTP."""
    files = [path for path in TOP.rglob("*.py") if ".venv" not in path.parts]
    assert len(files) > 60
    for path in files:
        heads = {name.partition(".")[0] for name in imported(path)}
        assert "worker" not in heads, path


def test_private_names_of_ray_are_in_one_module() -> None:
    """Those that have no public way."""
    used = {path.name: private_names(path) for path in PACKAGE.rglob("*.py")}
    assert used.pop(ADAPTER) == PRIVATE
    assert {name: names for name, names in used.items() if names} == {}
    assert Path(gguf_fleet.__file__).parent == PACKAGE


def test_ray_is_not_needed_by_the_gateway() -> None:
    """What answers requests, routes and plans knows no Ray."""
    free = [*(PACKAGE / "front").glob("*.py"), PACKAGE / "routing.py", PACKAGE / "plan.py"]
    for path in free:
        assert not any(name.partition(".")[0] == "ray" for name in imported(path)), path
