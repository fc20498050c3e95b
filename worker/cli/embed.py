"""worker embed: vectors of the lines of a text."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from worker import log
from worker.cli.model import model_path
from worker.cli.options import settings_from
from worker.cli.progress import load_progress
from worker.engine.embedding import EmbeddingLane, normalise, shorten, vectors_wanted
from worker.engine.engine import Engine
from worker.errors import RequestError, UsageError, quantity
from worker.lifecycle.loading import open_backend
from worker.lifecycle.prepared import load_weights, prepare

# Lines that are read, computed and written before the next ones are read.
_LINES = 256
_CHUNK = 1 << 16


class EmbeddedLine(msgspec.Struct):
    """One line of --json: its number from 0 on, its tokens, its vector."""

    index: int
    tokens: int
    embedding: list[float]


def run(arguments: argparse.Namespace) -> int:
    """Vectors to stdout, figures to stderr. Raises UsageError."""
    settings = msgspec.structs.replace(settings_from(arguments), parallel=1)
    log.configure("console", "debug" if settings.verbose else "error")

    path = model_path(settings)
    prepared = prepare(path, settings, sees=False)
    with _open(arguments.file) as lines, load_progress(path.name) as report:
        weights = load_weights(path, settings, prepared, report)
        with open_backend(weights, settings, prepared) as backend:
            embedder = backend.embedder
            if embedder is None or embedder.pooling in ("none", "rank"):
                raise UsageError(
                    f"{path.name} {prepared.config.task}.",
                    hint="Name an embedding model with --model, or add --pooling mean.",
                )
            wanted = _some(lines, arguments.skip)
            _embed(arguments, backend, wanted, _writer(arguments, embedder.width))
    return 0


def _open(name: str) -> IO[bytes]:
    return sys.stdin.buffer if name == "-" else Path(name).open("rb")


def _some(lines: IO[bytes], skip: int) -> Iterator[list[tuple[int, str]]]:
    """Lines with their numbers, as soon as they are there, at most _LINES at once."""
    number, rest = 0, b""
    while chunk := os.read(lines.fileno(), _CHUNK):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from _decode(whole, number, skip)
        number += len(whole)
    if rest:
        yield from _decode([rest], number, skip)


def _decode(lines: list[bytes], first: int, skip: int) -> Iterator[list[tuple[int, str]]]:
    """Those behind the first `skip`; what stands before a line that cannot be read is given."""
    found: list[tuple[int, str]] = []
    for number, line in enumerate(lines, first):
        if number < skip:
            continue
        try:
            found.append((number, line.rstrip(b"\r").decode()))
        except UnicodeDecodeError as error:
            yield found
            raise UsageError(
                f"Line {number + 1} is not UTF-8 at its byte {error.start}.",
                hint="Convert the text with iconv.",
            ) from None
        if len(found) == _LINES:
            yield found
            found = []
    yield found


def _embed(
    arguments: argparse.Namespace,
    backend: Any,
    lines: Iterator[list[tuple[int, str]]],
    write: Callable[[Sequence[EmbeddedLine]], None],
) -> None:

    engine = Engine(backend, time.monotonic, lane=EmbeddingLane(backend.embedder, time.monotonic))
    most = backend.embedder.max_length if arguments.truncate else None
    begun, count, tokens = time.monotonic(), 0, 0
    for some in filter(None, lines):
        texts: list[Sequence[int]] = []
        ends = backend.vocab.ends_of_texts
        for number, line in some:
            found = backend.vocab.tokenize(line, add_special=True, parse_special=False)
            texts.append(shorten(found, most, ends))
            if len(texts[-1]) > backend.embedder.max_length:
                raise UsageError(
                    f"Line {number + 1} has {quantity(len(found), 'token')}, "
                    f"{backend.embedder.max_length} is the most.",
                    hint="Add --truncate, and such lines are cut.",
                )
        try:
            made = engine.vectors(vectors_wanted(texts, "line"))
        except RequestError as error:
            raise UsageError(error.message, hint=error.hint) from None
        write(
            [
                EmbeddedLine(number, len(text), normalise(vector).tolist())
                for (number, _), text, vector in zip(some, texts, made, strict=True)
            ]
        )
        count, tokens = count + len(some), tokens + sum(map(len, texts))
        _say(f"\r{quantity(count, 'line')}" if sys.stderr.isatty() else "")
    write(())
    seconds = max(time.monotonic() - begun, 1e-9)
    _say(
        f"\r{quantity(count, 'line')}, {quantity(tokens, 'token')} in {seconds:.2f} s: "
        f"{count / seconds:.1f} lines/s, "
        f"{tokens / seconds:.0f} tokens/s\n"
    )


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _writer(arguments: argparse.Namespace, width: int) -> Callable[[Sequence[EmbeddedLine]], None]:
    """What writes some lines; without any: the end."""
    out = sys.stdout.buffer
    if arguments.npy:
        return _array_writer(out, width)

    def write(lines: Sequence[EmbeddedLine]) -> None:
        for line in lines:
            if arguments.json:
                out.write(msgspec.json.encode(line) + b"\n")
            else:
                out.write(" ".join(f"{value:.7g}" for value in line.embedding).encode() + b"\n")
        out.flush()

    return write


def _array_writer(out: IO[bytes], width: int) -> Callable[[Sequence[EmbeddedLine]], None]:

    rows: list[np.ndarray] = []

    def write(lines: Sequence[EmbeddedLine]) -> None:
        rows.extend(np.array(line.embedding, np.float32) for line in lines)
        if not lines:
            np.save(out, np.stack(rows) if rows else np.empty((0, width), np.float32))
            out.flush()

    return write
