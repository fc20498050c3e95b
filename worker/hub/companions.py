"""Files that lie beside a model and are none: projectors, importance matrices, heads that guess.

Their names have words in them that names of models have too: `m-imatrix-Q4_K_M.gguf` was quantised
with a matrix, `m-MTP-Q8_0.gguf` has heads in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from worker.errors import ModelFileError
from worker.gguf.quant import ENCODINGS, label_in_name
from worker.model.config import load_config

_WORD = re.compile(r"(?:^|[-_./])(mmproj|imatrix|mtp)(?=[-_./]|$)", re.IGNORECASE)
_FIRST = re.compile(r"(mmproj|mtp|imatrix)(?=[-_.]|$)", re.IGNORECASE)
_LAST_IMATRIX = re.compile(r".*[-_.]imatrix", re.IGNORECASE | re.DOTALL)
# Encodings that companions have, too; who offers fewer bits offers a model.
_FINE = frozenset({e.name for e in ENCODINGS.values() if not e.quantized} | {"Q8_0", None})
_CODES = frozenset({"MMPROJ", "IMATRIX", "DRAFT_MODEL"})
# A model in eight bits has at least so much of the bytes of the same one in sixteen; a projector
# has less of its model's.
_SHARE = 0.5


def companions(files: Mapping[str, int]) -> set[str]:
    """Those of `files` (path -> bytes) that are no models, judged by what is known without them.

    A word in front of the name says it, and `imatrix` at its end. One inside it says it of a file
    that is much smaller than all models without such a word.
    """
    sure = [size for path, size in files.items() if not _WORD.search(path)]
    return {
        path
        for path, size in files.items()
        if (kind := _by_name(path)) or (kind is None and size < _SHARE * min(sure, default=0))
    }


def companions_here(folder: Path, files: Mapping[str, int]) -> set[str]:
    """The same of files below `folder`, judged by what they hold."""
    by_name = companions(files)
    return {path for path in filter(_WORD.search, files) if _holds_none(folder, path, by_name)}


def _by_name(path: str) -> bool | None:
    """Whether it is one; None: its name leaves it open."""
    if not _WORD.search(path):
        return False
    name = path.rpartition("/")[2]
    stem, label = name[: -len(".gguf")], label_in_name(name)
    first = _FIRST.match(stem)
    if (first and first[1].lower() != "imatrix") or (
        label in _FINE and (first or _LAST_IMATRIX.fullmatch(stem))
    ):
        return True
    inside = {match[1].lower() for match in _WORD.finditer(path)}
    return None if label in _FINE and inside != {"imatrix"} else False


def _holds_none(folder: Path, path: str, by_name: set[str]) -> bool:
    try:
        load_config(folder / path, purpose="serve")
    except ModelFileError as error:
        # What else is wrong with a model is told to whoever takes it.
        return error.code in _CODES or path in by_name
    return False
