"""Which encodings a repository offers, and which one to take where the user named none."""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from worker.errors import DoesNotFitError, UsageError
from worker.gguf.quant import ENCODINGS, label_in_name
from worker.gguf.split_name import SplitName, all_files
from worker.machine import Memory, human_bytes

# Of a file that is not here only the size is known. A fifth of it covers the buffers and the cells
# of several thousand tokens, and 512 MiB covers the process; `worker plan` computes it exactly.
_CONTEXT_SHARE = 1.2
_PROCESS_BYTES = 512 << 20
# A larger encoding costs memory, and nobody notices a difference in the answers.
_BEST = "Q8_0"
_PLAIN = frozenset(encoding.name for encoding in ENCODINGS.values() if not encoding.quantized)


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
    """The candidate in that encoding. UsageError where there is none, or more than one."""
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
        hint="Name one of them, or a file: hf:ORGANISATION/REPOSITORY::file=NAME.gguf",
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
