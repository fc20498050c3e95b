"""Which encodings a repository offers, and which one to take where the user named none.

Files that lie beside a model and are none (projectors, importance matrices, MTP heads) have
words in their names that names of models have too: `m-imatrix-Q4_K_M.gguf` was quantised with a
matrix, `m-MTP-Q8_0.gguf` has heads in it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

import msgspec

from worker.errors import DoesNotFitError, ModelFileError, UsageError
from worker.gguf.quant import ENCODINGS, label_in_name
from worker.gguf.split_name import SplitName, all_files
from worker.machine import Memory, human_bytes
from worker.model.config import load_config

_WORD = re.compile(r"(?:^|[-_./])(mmproj|imatrix|mtp)(?=[-_./]|$)", re.IGNORECASE)
# Drafters begin so. Of several kinds the first counts, as in llama-server.
_DRAFTERS = ("mtp-", "eagle3-", "dflash-")
_BITS = re.compile(r"\d+")
_FIRST = re.compile(r"(mmproj|mtp|imatrix)(?=[-_.]|$)", re.IGNORECASE)
_LAST_IMATRIX = re.compile(r".*[-_.]imatrix", re.IGNORECASE | re.DOTALL)
# Encodings that companions have, too; who offers fewer bits offers a model.
_FINE = frozenset({e.name for e in ENCODINGS.values() if not e.quantized} | {"Q8_0", None})
_CODES = frozenset({"MMPROJ", "IMATRIX", "DRAFT_MODEL"})
# A model in eight bits has at least so much of the bytes of the same one in sixteen; a projector
# has less of its model's.
_SHARE = 0.5
# Of a file that is not here only the size is known. A fifth of it covers the buffers and the cells
# of several thousand tokens, and 512 MiB covers the process; `worker plan` computes it exactly.
_CONTEXT_SHARE = 1.2
_PROCESS_BYTES = 512 << 20
# A larger encoding costs memory, and nobody notices a difference in the answers.
_BEST = "Q8_0"
_PLAIN = frozenset(encoding.name for encoding in ENCODINGS.values() if not encoding.quantized)


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


def choose_drafter(files: Iterable[str], quant: str) -> str | None:
    """The drafter among the paths: in this encoding, or in one of about as many bits."""
    names = {path: path.rpartition("/")[2] for path in files}
    for kind in _DRAFTERS:
        found = [path for path, name in names.items() if name.lower().startswith(kind)]
        if found:
            labels = {path: label_in_name(names[path]) or "" for path in found}
            return min(
                found,
                key=lambda path: (
                    labels[path] != quant,
                    abs(_bits(labels[path]) - _bits(quant)),
                    path,
                ),
            )
    return None


def _bits(quant: str) -> int:
    """Of each weight, about."""
    found = _BITS.search(quant)
    return int(found[0]) if found else 0


class OfferedFile(msgspec.Struct, frozen=True):
    """A model that a repository has: the encoding that its name tells, its files, their bytes."""

    quant: str
    files: tuple[str, ...]
    size: int


def offers(files: Mapping[str, int], no_models: Container[str] = ()) -> list[OfferedFile]:
    """The models among `files` (path -> bytes), without `no_models`.

    A split model counts where all its files are there.
    """
    found: list[OfferedFile] = []
    for path in files:
        split = SplitName.parse(path)
        if (split and not split.is_first) or path in no_models:
            continue
        folder, _, name = path.rpartition("/")
        quant = label_in_name(name) or label_in_name(folder.rpartition("/")[2]) or ""
        all_parts = all_files(path)
        if all(part in files for part in all_parts):
            found.append(OfferedFile(quant, all_parts, sum(files[part] for part in all_parts)))
    return found


def only(candidates: list[OfferedFile], quant: str, name: str) -> OfferedFile:
    """The candidate in that encoding. Raises UsageError where there is none, or more
    than one."""
    matching = [offer for offer in candidates if offer.quant == quant]
    if len(matching) == 1:
        return matching[0]
    if matching:
        files = ", ".join(offer.files[0] for offer in matching)
        raise UsageError(
            f"{name} has {len(matching)} models in {quant}: {files}.",
            hint=f"Name the file: hf:{name}::file={matching[0].files[0]}",
        )
    known = ", ".join(sorted({offer.quant for offer in candidates if offer.quant})) or "none"
    raise UsageError(
        f"{name} has no {quant}; its encodings: {known}.",
        hint="Name one of them, or a file: hf:ORGANIZATION/REPOSITORY::file=NAME.gguf",
    )


def choose(sizes: Mapping[str, int], memory: Memory, name: str) -> str:
    """The largest encoding up to Q8_0 that leaves room for a context of several thousand tokens.

    `sizes` has the bytes of all files of each encoding. An encoding fits where 1.2 times its bytes
    and 512 MiB are within the available memory. Raises DoesNotFitError where none fits.
    """
    candidates = _sensible(sizes)
    fitting = [label for label in candidates if _need(candidates[label]) <= memory.available]
    if fitting:
        return max(fitting, key=candidates.__getitem__)
    least = smallest(candidates)
    raise DoesNotFitError(
        f"No encoding of {name} fits: the smallest, {least}, needs about "
        f"{human_bytes(_need(candidates[least]))}, {human_bytes(memory.available)} of the host's "
        "memory are available.",
        hint=f"Take a smaller model, or name the encoding all the same: {name}:{least}.",
    )


def smallest(sizes: Mapping[str, int]) -> str:
    """The encoding with the fewest bytes."""
    return min(sizes, key=sizes.__getitem__)


def _sensible(sizes: Mapping[str, int]) -> dict[str, int]:
    """The encodings up to the size of Q8_0, or all where there are no such."""
    limit = sizes.get(_BEST)
    found = {
        label: size
        for label, size in sizes.items()
        if label not in _PLAIN and (limit is None or size <= limit)
    }
    return found or dict(sizes)


def _need(size: int) -> int:
    return int(size * _CONTEXT_SHARE) + _PROCESS_BYTES
