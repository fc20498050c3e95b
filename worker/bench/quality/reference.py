"""The reference's distributions on disk: its likeliest tokens, and a sample of the others.

Whole rows of a large vocabulary take tens of gigabytes (37 GiB for Llama 3 on a common test
text). Here a row keeps its `head`: the likeliest tokens with their ln p. The other tokens have
the probability mass `tail`; some of them, drawn by their probability, are kept too. With level q,
reference p and tail mass t, the divergence

    KL(p‖q) = Σ_head p (ln p - ln q)  +  t · ⟨ln p - ln q⟩ under p given the tail

is exact in its first part. Its second part is a mean over the sample: right on average, and its
standard error is reported. Rows that fit the bound whole have no second part. They are stored in
single precision, which costs below 1e-6.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from zipfile import BadZipFile

import msgspec
import numpy as np
from numpy.typing import NDArray

from worker.bench.figures import Floats, Ids
from worker.bench.quality.windows import BLOCK, Logits, Windows, gather, log_sums

MAX_BYTES = 256 << 20
ENTRY_BYTES = 8  # int32 id, float32 ln p
_MAX_DRAWN = 64
_ARRAYS = ("ids", "top", "logp", "tail", "target")  # of a block
ANSWERS = "answers.json"  # what the reference answered besides its rows


class RowShape(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of a row: `head` likeliest tokens, `drawn` others."""

    head: int
    drawn: int


def shape_of(rows: int, vocab_size: int) -> RowShape:
    """The widest rows with which `rows` of them stay within MAX_BYTES."""
    width = max(2, MAX_BYTES // (rows * ENTRY_BYTES))
    if width >= vocab_size:
        return RowShape(head=vocab_size, drawn=0)
    drawn = min(_MAX_DRAWN, width // 2)
    return RowShape(head=width - drawn, drawn=drawn)


class ReferenceBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of the reference, n of them.

    ids, logp  of the entries, [n, width]
    top        the likeliest token, [n]
    tail       probability mass of the tokens outside the head, [n]
    target     ln p of the text's own token, [n]
    """

    shape: RowShape
    ids: Ids
    top: Ids
    logp: NDArray[np.float32]
    tail: Floats
    target: Floats


def condense(logits: Logits, targets: Ids, shape: RowShape, seed: int) -> ReferenceBlock:
    """The rows of one window, float32 [n, vocab], in their compact form."""
    rng = np.random.default_rng(seed)
    step = max(1, BLOCK // logits.shape[1])
    parts = [
        _condense(logits[at : at + step], targets[at : at + step], shape, rng)
        for at in range(0, len(logits), step)
    ]
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
    return ReferenceBlock(shape=shape, **arrays)


def _condense(
    logits: Logits, targets: Ids, shape: RowShape, rng: np.random.Generator
) -> ReferenceBlock:
    sums = log_sums(logits)
    rest = logits.shape[1] - shape.head
    order = np.argpartition(logits, rest, axis=1) if rest else np.argsort(logits, axis=1)
    head = order[:, rest:]
    ranked = np.argsort(-np.take_along_axis(logits, head, axis=1), axis=1, kind="stable")
    ids = np.take_along_axis(head, ranked, axis=1)
    tail = np.zeros(len(logits))
    if rest:
        others = order[:, :rest]
        mass = np.exp(np.take_along_axis(logits, others, axis=1).astype(np.float64) - sums[:, None])
        reached = np.cumsum(mass, axis=1)
        tail = reached[:, -1]
        # One draw from each of equal shares of the mass: less spread than independent draws.
        draws = (np.arange(shape.drawn) + rng.random((len(logits), 1))) / shape.drawn
        chosen: list[NDArray[np.intp]] = [
            np.searchsorted(row, draw * row[-1], side="right")
            for row, draw in zip(reached, draws, strict=True)
        ]
        places = np.minimum(np.array(chosen).reshape(len(logits), -1), rest - 1)
        ids = np.concatenate([ids, np.take_along_axis(others, places, axis=1)], axis=1)
    ids = ids.astype(np.int32)
    return ReferenceBlock(
        shape=shape,
        ids=ids,
        top=logits.argmax(axis=1).astype(np.int32),
        logp=gather(logits, sums, ids).astype(np.float32),
        tail=tail,
        target=gather(logits, sums, targets[:, None])[:, 0],
    )


def is_whole(folder: Path) -> bool:
    """Whether everything in a folder of rows can be read; the files' checksums are checked."""
    try:
        rows = ReferenceRows(folder)
        for index in range(len(rows.windows.tokens)):
            rows.read(index)
        msgspec.json.decode((folder / ANSWERS).read_bytes())
    except (OSError, ValueError, LookupError, EOFError, MemoryError, BadZipFile, zlib.error,
            msgspec.MsgspecError):  # fmt: skip
        return False
    return True


class ReferenceRows:
    """Blocks in a folder, one for each window, and the windows themselves."""

    def __init__(self, folder: Path) -> None:
        """Open a folder that `create` and `write` have filled."""
        self.folder = folder
        self.shape = msgspec.json.decode((folder / "shape.json").read_bytes(), type=RowShape)
        with np.load(folder / "windows.npz") as saved:
            self.windows = Windows(
                tokens=saved["tokens"],
                first=int(saved["first"]),
                num_tokens=int(saved["num_tokens"]),
            )

    @classmethod
    def create(cls, folder: Path, windows: Windows, shape: RowShape) -> ReferenceRows:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "shape.json").write_bytes(msgspec.json.encode(shape))
        np.savez(
            folder / "windows.npz",
            tokens=windows.tokens,
            first=windows.first,
            num_tokens=windows.num_tokens,
        )
        return cls(folder)

    def write(self, index: int, block: ReferenceBlock) -> None:
        """Save the block of window `index`."""
        np.savez(self._file(index), **{name: getattr(block, name) for name in _ARRAYS})

    def read(self, index: int) -> ReferenceBlock:
        """The block of window `index`."""
        with np.load(self._file(index)) as saved:
            return ReferenceBlock(shape=self.shape, **{name: saved[name] for name in _ARRAYS})

    def _file(self, index: int) -> Path:
        return self.folder / f"{index:06}.npz"
