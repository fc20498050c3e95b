"""worker bench: measure quant levels on this machine, and say which one to take."""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from pathlib import Path

import msgspec

from worker import machine
from worker.bench.embedding import EmbeddingBench, write_vectors
from worker.bench.plan import (
    GENERAL_TEXT,
    QUICK_QUANTS,
    BenchPlan,
    Level,
    held_out_part,
    levels_of_files,
    levels_of_source,
    open_corpus,
    paths_by_name,
    with_adapters,
)
from worker.bench.quality.questions import open_questions
from worker.bench.report.changes import changes_between, read_report
from worker.bench.report.documents import write_report
from worker.bench.report.verdict import DEFAULT_MAX_KLD
from worker.bench.run.bench import Bench
from worker.bench.run.cache import DEFAULT_BYTES, BenchCache
from worker.bench.run.fits import check_sizes
from worker.bench.sizes import EFFORTS
from worker.cli.bench_cells import compare as compare_cells
from worker.cli.bench_decisions import compare
from worker.cli.bench_table import (
    changes_table,
    hand_over,
    report_table,
    summary,
    vector_table,
    watch,
)
from worker.cli.console import data_console, write_json
from worker.cli.model import model_path
from worker.cli.options import settings_from
from worker.cli.stop_signals import raising_stop_signals
from worker.demo import HELDOUT_PATH, MODEL_PATH
from worker.errors import UsageError
from worker.files import cache_folder
from worker.gguf.imatrix import read_imatrix
from worker.gguf.split_name import is_gguf
from worker.hub.catalog import load_catalog
from worker.hub.locate import local_files
from worker.hub.name import Named, parse
from worker.model.config import load_config
from worker.settings import Settings

_GB = 10**9


def run(arguments: argparse.Namespace) -> int:
    """Measure and report; or compare two reports; or clean up."""

    if arguments.compare:
        return _compare(*map(Path, arguments.compare), as_json=arguments.json)
    limit = DEFAULT_BYTES if arguments.cache_gb is None else arguments.cache_gb * _GB
    cache = BenchCache(cache_folder("bench"), int(limit))
    if arguments.clean:
        with cache.lock():
            sys.stderr.write(f"{machine.human_bytes(cache.clean())} removed from {cache.folder}\n")
        return 0

    questions: str | None = arguments.asked  # `decisions` is the setting
    if questions is not None and is_gguf(questions):  # the model, written behind the option
        arguments.models.insert(0, questions)
        questions = ""
    plan, makes_vectors = _plan(arguments)
    out = _folder(arguments.out)
    if questions is not None:
        if makes_vectors:
            raise UsageError("An embedding model decides nothing.", hint="Leave --decisions out.")
        with raising_stop_signals():
            return compare(plan, cache, questions, out, as_json=arguments.json)
    if arguments.cells:
        if makes_vectors or plan.corpus is None:
            raise UsageError(
                "Cells are compared by the text that a model continues.",
                hint="Name a model that writes text, and leave --no-quality out.",
            )
        with raising_stop_signals():
            return compare_cells(plan, cache, arguments.cells, out, as_json=arguments.json)
    if makes_vectors:
        return _compare_vectors(plan, cache, out, as_json=arguments.json)
    bench = Bench(plan, cache)
    with raising_stop_signals():
        report = watch(bench.events(), summary)
    hand_over(report, write_report, out, report_table, as_json=arguments.json)
    bench.forget_timings()
    return 0


def _compare_vectors(plan: BenchPlan, cache: BenchCache, out: Path | None, *, as_json: bool) -> int:
    """Levels of a model that makes vectors."""

    with raising_stop_signals():
        report = watch(EmbeddingBench(plan, cache).events(), vector_table)
    hand_over(report, write_vectors, out, vector_table, as_json=as_json)
    return 0


def _plan(arguments: argparse.Namespace) -> tuple[BenchPlan, bool]:
    """What will be run, and whether it is about vectors."""

    settings = msgspec.structs.replace(settings_from(arguments), draft="none")
    if arguments.quick and settings.parallel is None:
        settings = msgspec.structs.replace(settings, parallel=1)
    levels, source = levels_of(arguments, settings)
    if settings.lora:
        levels = with_adapters(levels, settings.lora)
        settings = msgspec.structs.replace(settings, lora=())
    for level in levels:
        path = level.path or ""
        if os.fsencode(path) != path.encode(errors="replace"):
            raise UsageError(
                f"{path!r} is no text in UTF-8, so a report could not name it.",
                hint="Rename it, or give it another name with `ln -s`.",
            )
    # Only the demo model carries a card of ours; its kind of text is not that of others.
    known = source or Path(levels[0].path or MODEL_PATH)
    config = load_config(known, purpose="serve")
    makes_vectors = config.only_embeds or settings.pooling is not None
    if makes_vectors and arguments.no_quality:
        raise UsageError(
            "An embedding model is compared by its embeddings.", hint="Leave --no-quality out."
        )
    if makes_vectors and levels[-1].lora is not None:
        raise UsageError("Embeddings are computed without adapters.", hint="Leave --lora out.")
    for option in ("questions", "time"):
        if makes_vectors and getattr(arguments, option) is not None:
            raise UsageError(
                f"An embedding model embeds the whole text, and --{option} does not apply.",
                hint="Leave it out.",
            )
    for option in ("text", "questions"):
        if arguments.no_quality and getattr(arguments, option) is not None:
            raise UsageError(
                f"--{option} is for quality, and --no-quality measures none.",
                hint="Leave one of them out.",
            )
    is_demo = bool(config.card)
    max_kld = DEFAULT_MAX_KLD if arguments.max_kld is None else arguments.max_kld
    if not 0 < max_kld < math.inf:
        raise UsageError("--max-kld must be above 0.", hint="Write --max-kld 0.05, say.")
    if arguments.imatrix is not None:
        read_imatrix(arguments.imatrix)
    corpus = None
    own = open_questions(Path(arguments.questions)) if arguments.questions else None
    asks = len(levels) > 1 or arguments.text or own or makes_vectors or arguments.cells
    if not arguments.no_quality and asks:
        default = HELDOUT_PATH if is_demo else GENERAL_TEXT
        corpus = open_corpus(Path(arguments.text) if arguments.text else default)
    if any(level.fit for level in levels):
        _check_fits(arguments, makes_vectors=makes_vectors)
        assert corpus is not None
        corpus = held_out_part(corpus)
    effort = "quick" if arguments.quick else "thorough" if arguments.thorough else "normal"
    plan = BenchPlan(
        levels=levels,
        source=str(source) if source else None,
        imatrix=arguments.imatrix,
        settings=settings,
        effort=effort,
        time_s=EFFORTS[effort][1] if arguments.time is None else arguments.time,
        own_questions=own,
        threads=settings.threads or machine.usable_cpus(),
        corpus=corpus,
        questions="demo" if is_demo else "general",
        max_kld=max_kld,
        fresh=arguments.fresh,
    )
    check_sizes(plan)
    return plan, makes_vectors


def _check_fits(arguments: argparse.Namespace, *, makes_vectors: bool) -> None:
    """Raises UsageError for what a fit cannot be measured by."""
    if makes_vectors:
        raise UsageError(
            "An embedding model writes no text, and a fit is chosen by the tokens that follow.",
            hint="Leave fit: out of --quants.",
        )
    others = {
        "--no-quality": arguments.no_quality,
        "--cells": arguments.cells,
        "--decisions": arguments.asked is not None,
    }
    if given := [option for option, value in others.items() if value]:
        raise UsageError(
            f"A fit is measured by its divergence, and {given[0]} does not measure that.",
            hint="Leave one of them out, or make the file first with `worker quantize --bits`.",
        )


def levels_of(
    arguments: argparse.Namespace, settings: Settings
) -> tuple[tuple[Level, ...], Path | None]:
    """Levels and, where they are made here, their source."""

    quants = None
    if arguments.quants is not None:
        quants = [name.strip() for name in arguments.quants.split(",") if name.strip()]
        if not quants:
            raise UsageError("--quants names no level.", hint="Write --quants Q8_0,Q4_K_M, say.")
    files: dict[str, Path] = {}
    if len(arguments.models) == 1:
        files = _local_files(arguments.models[0], settings)
    if not files:
        texts = arguments.models or [settings.model]
        paths = [model_path(msgspec.structs.replace(settings, model=text)) for text in texts]
        if len(paths) == 1:
            if (settings.lora or arguments.cells) and quants is None:
                quants = []
            if arguments.quick and quants is None:
                return levels_of_source(paths[0], None, arguments.reference, usual=QUICK_QUANTS)
            return levels_of_source(paths[0], quants, arguments.reference)
        files = paths_by_name(paths)
    return levels_of_files(files, quants, arguments.reference), None


def _local_files(text: str, settings: Settings) -> dict[str, Path]:
    """The encodings that are here of a catalogue's model named without one."""

    reference = parse(text)
    if not isinstance(reference, Named) or reference.quant is not None:
        return {}

    return local_files(load_catalog(settings.catalog).find(reference.name))


def _folder(name: str | None) -> Path | None:
    """The folder for the reports, made before anything is measured for it."""
    if name is None:
        return None
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written to: {error.strerror}.", hint="Name another folder."
        ) from None


def _compare(before: Path, after: Path, *, as_json: bool) -> int:

    changes = changes_between(read_report(before), read_report(after))
    if as_json:
        write_json(changes)
    else:
        data_console().print(changes_table(changes))
    return 0
