"""worker imatrix: compute an importance matrix."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from worker.bench.fit.fit import minutes
from worker.bench.fit.jobs import MatrixJob, MatrixMade, ask
from worker.bench.fit.matrix import origin_of
from worker.bench.plan import open_corpus
from worker.cli.console import data_console, pairs, write_json
from worker.cli.model import model_path
from worker.cli.options import settings_from
from worker.cli.progress import load_progress
from worker.cli.stop_signals import raising_stop_signals
from worker.errors import ModelFileError, UsageError, quantity
from worker.files import check_writable
from worker.gguf.imatrix import read_collected
from worker.gguf.splits import open_header
from worker.model.config import load_config


def run(arguments: argparse.Namespace) -> int:
    """Compute and write it. Raises UsageError."""

    job = _job(arguments)
    target = Path(job.target)
    begun = time.monotonic()
    first: tuple[float, float] | None = None  # when the first share came
    with load_progress(target.name, "computing") as bar, raising_stop_signals():
        shares = ask(job, MatrixMade)
        try:
            while True:
                share = next(shares)
                bar(share)
                now = time.monotonic()
                if first is None:
                    first = now, share
                elif first[1] >= 0:
                    whole = (now - first[0]) / (share - first[1]) * (1 - share) + now - begun
                    sys.stderr.write(f"about {_time(whole)} in all\n")
                    first = now, -1.0
        except StopIteration as end:
            made: MatrixMade = end.value
        except KeyboardInterrupt:
            shares.close()  # which waits for the file
            _tell_kept(target, job)
            raise
    if arguments.json:
        write_json(made)
    else:
        data_console().print(_table(target, made))
    return 0


def _job(arguments: argparse.Namespace) -> MatrixJob:

    settings = settings_from(arguments)
    source, target = model_path(settings), Path(arguments.output)
    if not target.parent.is_dir():
        raise UsageError(f"There is no folder {target.parent}.", hint="Make it first.")
    check_writable(target.parent)
    corpora = [open_corpus(Path(name)) for name in arguments.text]
    config = load_config(source, purpose="serve")
    hashes = [corpus.sha256 for corpus in corpora]
    job = MatrixJob(
        path=str(source),
        settings=settings,
        texts=tuple(Path(corpus.path).read_text("utf-8") for corpus in corpora),
        dataset=", ".join(corpus.name for corpus in corpora),
        target=str(target),
        origin="",
        chunk=min(arguments.chunk, config.context or arguments.chunk),
        chunks=arguments.chunks,
        with_output=arguments.process_output,
    )
    header = open_header(source)
    _check_target(target, [*(file.path for file in header.files), *arguments.text])
    told = hashlib.sha256(repr((hashes, job.chunk, job.with_output)).encode()).hexdigest()
    job = msgspec.structs.replace(job, origin=origin_of(header, told))
    if target.exists() and not arguments.force and _collection(target, job) is None:
        raise UsageError(
            f"{target} exists already, of other texts or another model.",
            hint="Name another file, or pass --force.",
        )
    return job


def _check_target(target: Path, read: Iterable[str | Path]) -> None:
    """Raises UsageError for a folder, and for a file that is read: --force replaces none."""
    if target.is_dir():
        raise UsageError(f"{target} is a folder.", hint="Name the file to write.")
    if target.exists() and any(target.samefile(path) for path in read):
        raise UsageError(
            f"{target} is the model or a text itself.", hint="Name another file to write."
        )


def _collection(target: Path, job: MatrixJob) -> int | None:
    """Chunks that an earlier run of the same left; None: the file is another one."""

    try:
        found = read_collected(target)
    except ModelFileError:
        return None
    return found.chunks if found.origin == job.origin else None


def _tell_kept(target: Path, job: MatrixJob) -> None:
    chunks = _collection(target, job) if target.exists() else None
    if chunks:
        sys.stderr.write(f"{target} has {quantity(chunks, 'chunk')}; the same command continues.\n")


def _table(target: Path, made: MatrixMade) -> Any:
    rows = {
        "text": f"{quantity(made.chunks, 'chunk')} of {made.chunk} tokens",
        "time": _time(made.seconds),
    }
    if made.begun:
        rows["from before"] = quantity(made.begun, "chunk")
    for name, experts in made.rare.items():
        rows[f"few tokens: {name}"] = f"experts {', '.join(map(str, experts))}"
    return pairs(target.name, rows)


def _time(seconds: float) -> str:

    return minutes(seconds)
