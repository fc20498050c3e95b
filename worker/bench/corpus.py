"""The text that quality is measured on, cut into windows of tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from worker.errors import UsageError
from worker.llama.vocab import Vocab

Tokens = NDArray[np.int32]

MIN_WINDOW = 32
_SHORT_WINDOW, _FEW_WINDOWS = 128, 10
_MAX_BYTES = 64 << 20


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """Which text: its name, its content's hash, its size."""

    name: str
    path: str
    sha256: str
    nbytes: int


def open_corpus(path: Path) -> Corpus:
    """Look at a text file. Raises UsageError where it is none."""
    try:
        raw = path.read_bytes() if path.stat().st_size <= _MAX_BYTES else None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    if raw is None:
        raise UsageError(f"{path} is larger than {_MAX_BYTES >> 20} MiB; a part of it will do.")
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 at byte {error.start}.") from None
    return Corpus(
        name=path.name, path=str(path), sha256=hashlib.sha256(raw).hexdigest(), nbytes=len(raw)
    )


def text_of(corpus: Corpus) -> str:
    """The text, byte for byte. Raises UsageError where it is not the one that was looked at."""
    raw = Path(corpus.path).read_bytes()
    if hashlib.sha256(raw).hexdigest() != corpus.sha256:
        raise UsageError(f"{corpus.path} has changed meanwhile.", hint="Run the command again.")
    return raw.decode()


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """`tokens` int32 [windows, width]; of each, what follows position `first` is scored.

    num_tokens: tokens of the whole text
    """

    tokens: Tokens
    first: int
    num_tokens: int

    @property
    def num_scored(self) -> int:
        """Tokens scored in each window: row i predicts token i + 1, the last row nothing."""
        return self.tokens.shape[1] - self.first - 1


def cut(text: str, vocab: Vocab, width: int, most: int) -> Windows:
    """At most `most` windows, spread evenly over the text.

    As llama.cpp's perplexity tool: the text is tokenised as a whole, windows do not overlap, the
    first token of each gives way to BOS where the model wants one, and only the second half is
    scored, so that every scored token has half a window of context. A short text gets shorter
    windows, down to 128 tokens, until there are enough to tell an error from.
    """
    ids = np.array(vocab.tokenize(text, add_special=True, parse_special=False), np.int32)
    while width > _SHORT_WINDOW and len(ids) // width < _FEW_WINDOWS:
        width = max(_SHORT_WINDOW, width // 2)
    width = min(width, len(ids))
    if width < MIN_WINDOW:
        raise UsageError(
            f"The text has {len(ids)} tokens, too few to measure quality on.",
            hint=f"Give one of {MIN_WINDOW} tokens or more with --text, or use --no-quality.",
        )
    count = len(ids) // width
    chosen = _spread(count, min(count, most))
    tokens = ids[: count * width].reshape(count, width)[chosen]
    if vocab.adds_bos and vocab.bos is not None:
        tokens[:, 0] = vocab.bos
    return Windows(tokens=tokens, first=width // 2, num_tokens=len(ids))


def _spread(count: int, wanted: int) -> Sequence[int]:
    """`wanted` of 0 to count - 1 at even distances."""
    return [i * count // wanted for i in range(wanted)]


def random_tokens(seed: int, count: int, vocab_size: int) -> Tokens:
    """Token ids for speed measurements, where what they mean does not matter."""
    return np.random.default_rng(seed).integers(0, vocab_size, count, np.int32)
