"""The text, cut into windows of tokens, and llama.cpp's logits of them."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from worker.bench.figures import Floats, Ids
from worker.bench.plan import Corpus
from worker.bench.texts import split_texts
from worker.errors import UsageError, quantity
from worker.llama.backend import LlamaBackend
from worker.llama.vocab import Vocab

Logits = NDArray[np.float32]

MIN_WINDOW = 32
_SHORT_WINDOW, _FEW_WINDOWS = 128, 10
# Logits of a batch are held twice, in llama.cpp's output buffer and in its compute buffer.
_OUTPUT_BYTES = 128 << 20
MIN_OUTPUTS = 64
BLOCK = 1 << 22  # logits worked on at once


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """Windows of one text.

    tokens      int32 [windows, width]
    first       in each window, the tokens after this position are scored
    num_tokens  of the whole text
    """

    tokens: Ids
    first: int
    num_tokens: int

    @property
    def num_scored(self) -> int:
        """Tokens scored in each window: row i predicts token i + 1, the last row nothing."""
        return self.tokens.shape[1] - self.first - 1


def text_of(corpus: Corpus) -> str:
    """The text, byte for byte. Raises UsageError where it has changed since the run began."""
    text = Path(corpus.path).read_bytes().decode(errors="replace")
    if corpus.held_out:
        text = split_texts((text,))[1]
    if hashlib.sha256(text.encode()).hexdigest() != corpus.sha256:
        raise UsageError(f"{corpus.path} has changed meanwhile.", hint="Run the command again.")
    return text


def cut(text: str, vocab: Vocab, width: int, most: int, *, fewest: int = _FEW_WINDOWS) -> Windows:
    """At most `most` windows, spread evenly over the text.

    This follows llama.cpp's perplexity tool: the text is tokenised as a whole, windows do not
    overlap, and the first token of a window becomes BOS where the model wants one. Only the second
    half of a window is scored, so that every scored token has half a window of context. A short
    text gets shorter windows, down to 128 tokens, because an error needs several windows: `fewest`.
    Raises UsageError where the text has fewer than 32 tokens.
    """
    ids = np.array(vocab.tokenize(text, add_special=True, parse_special=False), np.int32)
    while width > _SHORT_WINDOW and len(ids) // width < fewest:
        width = max(_SHORT_WINDOW, width // 2)
    width = min(width, len(ids))
    if width < MIN_WINDOW:
        raise UsageError(
            f"The text has {quantity(len(ids), 'token')}, too few to measure quality on.",
            hint=f"Give one of {MIN_WINDOW} tokens or more with --text, or use --no-quality.",
        )
    count = len(ids) // width
    wanted = min(count, most)
    chosen = [i * count // wanted for i in range(wanted)]
    tokens = ids[: count * width].reshape(count, width)[chosen]
    if vocab.adds_bos and vocab.bos is not None:
        tokens[:, 0] = vocab.bos
    return Windows(tokens=tokens, first=width // 2, num_tokens=len(ids))


def chunk_outputs(vocab_size: int, wanted: int) -> int:
    """Rows of logits that one batch may have."""
    return max(MIN_OUTPUTS, min(wanted, _OUTPUT_BYTES // (4 * vocab_size)))


def logits_of(
    backend: LlamaBackend, windows: Windows, batch_rows: int
) -> Generator[tuple[Logits, Ids]]:
    """For each window its scored rows, float32 [n, vocab], and the tokens they predict, [n].

    batch_rows: the most tokens computed at once. llama.cpp rounds differently for other shapes of
    a batch, so all levels are computed with the same value.
    """
    width = windows.tokens.shape[1]
    for tokens in windows.tokens:
        backend.drop(0)
        logits = np.empty((windows.num_scored, backend.vocab_size), np.float32)
        start = 0
        while start < width:
            # A batch is bounded by its rows and by its outputs.
            outputs = max(start, windows.first) + backend.batch.max_outputs
            stop = min(start + min(batch_rows, backend.batch.capacity), outputs, width)
            scored = range(max(start, windows.first), min(stop, width - 1))
            found = compute(backend, tokens[start:stop], start, [at - start for at in scored])
            logits[scored.start - windows.first :][: len(found)] = found
            start = stop
        yield logits, tokens[windows.first + 1 :]


def compute(
    backend: LlamaBackend, tokens: Ids, start: int, outputs: Sequence[int], slot: int = 0
) -> Logits:
    """Compute tokens at positions from `start`; logits of the rows `outputs`, [outputs, vocab]."""
    backend.batch.clear()
    backend.batch.add(tokens, start, slot)
    backend.batch.outputs[list(outputs)] = 1
    backend.decode()
    logits = np.empty((len(outputs), backend.vocab_size), np.float32)
    for place, row in enumerate(outputs):
        logits[place] = backend.logits(row)
    return logits


def log_sums(logits: Logits) -> Floats:
    """ln Σ e^z of each row of [n, vocab], float64 [n].

    The largest logit is subtracted first. Then single precision loses below 1e-6: a logit far
    from the largest counts for little, and one near it is subtracted exactly.
    """
    largest = logits.max(axis=1)
    sums = np.empty(len(logits), np.float64)
    step = max(1, BLOCK // logits.shape[1])
    for at in range(0, len(logits), step):
        part = np.exp(logits[at : at + step] - largest[at : at + step, None])
        sums[at : at + step] = part.sum(axis=1, dtype=np.float64)
    return largest.astype(np.float64) + np.log(sums)


def gather(logits: Logits, sums: Floats, ids: Ids) -> Floats:
    """ln p of chosen tokens: `ids` [n, k] of each row, float64 [n, k]."""
    return np.take_along_axis(logits, ids, axis=1).astype(np.float64) - sums[:, None]
