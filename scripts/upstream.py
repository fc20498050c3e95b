"""What a newer llama.cpp has that the pinned one has not, and what of all it has is not here.

    python -m scripts.upstream FOLDER [--pinned FOLDER] [--all] [--json]

Reads sources as text and builds nothing. A name counts as here if a module of the worker has it as
a word, which a person then looks at: a hint, and no proof.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# What is compared: (where it stands, how a name of it is written there).
KINDS: dict[str, tuple[str, str]] = {
    "architecture": ("src/llama-arch.cpp", r'\{\s*LLM_ARCH_\w+,\s*"([^"(]+)"'),
    "metadata key": ("src/llama-arch.cpp", r'\{\s*LLM_KV_\w+,\s*"([^"]+)"'),
    "tensor type": ("ggml/include/ggml.h", r"\bGGML_TYPE_(\w+)\s*=\s*\d+"),
    "tokenizer": ("src/llama-vocab.cpp", r'tokenizer_(?:pre|model)\s*==\s*"([^"]+)"'),
    "projector": ("tools/mtmd/clip-impl.h", r'\{\s*PROJECTOR_TYPE_\w+,\s*"([^"]+)"'),
    "chat template": ("models/templates/*.jinja", ""),
    "option": ("common/arg.cpp", r'"(--[a-z][\w-]+)"(?=[^;]*?[,}])'),
    "route": ("tools/server/server.cpp", r'ctx_http\.(?:get|post|del)\s*\(\s*"([^"]+)"'),
    "request field": ("tools/server/server-schema.cpp", r'"([a-z_]{3,40})"'),
}


class _Row(NamedTuple):
    """A name of the newer source."""

    kind: str
    name: str
    is_new: bool
    is_here: bool


def names(folder: Path, kind: str) -> set[str]:
    """All names of that kind in the sources of a folder."""
    place, pattern = KINDS[kind]
    if not pattern:
        return {path.name for path in folder.glob(place)}
    path = folder / place
    return set(re.findall(pattern, path.read_text())) if path.exists() else set()


def words_here() -> set[str]:
    """All that stands in the worker's modules and in the table of other programs' options."""
    text = " ".join(path.read_text() for path in sorted((ROOT / "worker").rglob("*.py")))
    return set(re.findall(r"[\w./{}:-]+", text))


def is_here(kind: str, name: str, words: set[str]) -> bool:
    if kind == "chat template":  # any template is rendered
        return True
    if kind == "metadata key":
        name = name.removeprefix("%s.")
    shapes = {name, name.lower(), f"{name}=", name.lstrip("/"), name.rsplit(".")[-1]}
    return bool(shapes & words)


def main() -> int:
    parser = argparse.ArgumentParser("python -m scripts.upstream", description=__doc__)
    parser.add_argument("folder", type=Path, help="a newer llama.cpp's source")
    parser.add_argument("--pinned", type=Path, help="the pinned one's (without: from the index)")
    parser.add_argument("--all", action="store_true", help="also what the pinned one has")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    arguments = parser.parse_args()
    if not (arguments.folder / "include/llama.h").exists():
        sys.exit(f"{arguments.folder} is no source of llama.cpp: it has no include/llama.h.")
    pinned = arguments.pinned
    if pinned is None:
        from checks.suites.sdist import llama_cpp

        pinned = llama_cpp()
    words = words_here()
    rows = [
        _Row(kind, name, name not in old, is_here(kind, name, words))
        for kind in KINDS
        for old in (names(pinned, kind),)
        for name in sorted(names(arguments.folder, kind))
    ]
    shown = [row for row in rows if row.is_new or (arguments.all and not row.is_here)]
    if arguments.json:
        print(json.dumps([row._asdict() for row in shown], indent=2))
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table("kind", "name", "new", "here", box=None)
    for row in shown:
        table.add_row(row.kind, row.name, "yes" * row.is_new, "yes" if row.is_here else "no")
    Console(width=100).print(table)
    print(f"{len(rows)} names, {sum(row.is_new for row in rows)} new, {len(shown)} shown")
    return 0


if __name__ == "__main__":
    sys.exit(main())
