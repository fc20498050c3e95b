"""What the source of `worker` says without running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from checks.turns.run import ROOT

_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
# Participles that do not end in -ed, and what ends in -ed without being one.
_IRREGULAR = re.compile(
    "told|shown|kept|found|made|given|held|written|said|drawn|taken|known|spelt|sent|lent|chosen|"
    "begun|fed|gone|grown|heard|hidden|laid|lost|met|paid|seen|sold|sought|spent|split|spoken|"
    "stood|stolen|struck|swept|taught|thrown|torn|understood|won|worn"
)
_NO_PARTICIPLE = frozenset({"feed", "need", "speed", "seed", "embed"})


class Source(msgspec.Struct, frozen=True):
    """Counts of all modules; `__main__` says what they mean."""

    lines: int
    loaded: int
    context_vars: int
    inner_imports: int
    skips: int
    participles: tuple[str, ...]


def source() -> Source:
    """Of worker/ as it stands."""
    texts = [path.read_text() for path in _modules()]
    nodes = [node for path in _modules() for node in ast.walk(_tree(path))]
    functions = [node for node in nodes if isinstance(node, _FUNCTION)]
    inner = {
        id(node)
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    return Source(
        lines=sum(len(text.splitlines()) for text in texts),
        loaded=sum(isinstance(node, ast.arg) and _is_loaded(node) for node in nodes),
        context_vars=sum(
            isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ContextVar")
            for node in nodes
        ),
        inner_imports=len(inner),
        skips=sum(text.count("# fmt: skip") for text in texts),
        participles=tuple(sorted(each.name for each in functions if _is_participle(each))),
    )


def _modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _is_loaded(parameter: ast.arg) -> bool:
    note = parameter.annotation
    return note is not None and re.search(r"\bLoaded\b", ast.unparse(note)) is not None


def _is_participle(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A property may be one, as an adjective."""
    name = function.name
    is_regular = re.fullmatch(r"[a-z]+ed", name) and name not in _NO_PARTICIPLE
    if not (is_regular or _IRREGULAR.fullmatch(name)):
        return False
    return not any("property" in ast.unparse(each) for each in function.decorator_list)


def reached(start: str) -> set[Path]:
    """Modules that are imported with a module of worker/, beside packages' own."""
    found, left = set[Path](), [ROOT / start]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += _imports(path)
    return {path for path in found if path.name != "__init__.py"}


def lines_of(paths: set[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def _imports(path: Path) -> Iterator[Path]:
    for node in _outer(_tree(path)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.startswith("worker."):
                place = ROOT.joinpath(*name.split(".")[1:])
                module, package = place.with_suffix(".py"), place / "__init__.py"
                yield from (each for each in (module, package) if each.is_file())


def _outer(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when the module is imported."""
    for each in ast.iter_child_nodes(node):
        is_for_types = isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test)
        if not is_for_types and not isinstance(each, _FUNCTION | ast.Lambda):
            yield each
            yield from _outer(each)
