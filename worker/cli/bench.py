"""worker bench: measure quant levels on this machine, and say which one to take."""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from worker import machine
from worker.cli.console import data_console, write_json
from worker.cli.model import model_path
from worker.cli.options import add_options, reader, settings_from
from worker.cli.stop_signals import raising_stop_signals
from worker.demo import HELDOUT_PATH, MODEL_PATH
from worker.errors import UsageError
from worker.files import cache_folder
from worker.gguf.split_name import is_gguf
from worker.hub.catalog import load_catalog
from worker.hub.name import Named, parse
from worker.settings import CACHE_TYPES, Settings
from worker.values import cells_list, duration, number

if TYPE_CHECKING:
    from worker.bench.plan import BenchPlan, Level
    from worker.bench.run.cache import BenchCache

_GB = 10**9


DESCRIPTION = (
    "Measures size, loading, speed (bare and over HTTP), memory and quality of each quant "
    "level of a model, each in a separate process, and recommends a level for this machine. "
    "For an embedding model it measures the distance to the reference, and texts per second. "
    "A file in F16, BF16 or F32 is quantized; several files of one model are compared as they "
    "are. With --lora one file is measured with and without each adapter. Images are not "
    "measured, and no projector is loaded. After an interruption the same command continues."
)
EXAMPLE = "Example: worker bench model-f16.gguf --quants Q8_0,Q5_K_M,Q4_K_M --out report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("models", nargs="*", metavar="MODEL",
        help="a file, several files of one model, or a name whose encodings have been pulled "
        "(default: the embedded demo model)")  # fmt: skip
    add("--quants", metavar="A,B", help="levels to measure (Q8_0 to Q2_K, or all that are there)")
    add("--reference", metavar="QUANT", help="what quality is measured against (the largest)")
    add(
        "--text",
        metavar="FILE",
        help="text to measure quality on, in UTF-8; all of it, if the time allows",
    )
    add(
        "--questions",
        metavar="FILE",
        help='your own multiple-choice questions, a line each: {"question": "2 + 2 is", '
        '"choices": ["4", "5"], "answer": 0}',
    )
    add("--imatrix", metavar="FILE", help="importance matrix to quantize with")
    add("--decisions", nargs="?", const="", dest="asked", metavar="FILE.jsonl",
        help="measure how well each level answers typed questions, ours or those of FILE.jsonl, "
        "and write MODEL.gguf.decisions.json for `worker serve`")  # fmt: skip
    add("--cells", metavar="A,B", type=reader(cells_list(*CACHE_TYPES)),
        help="compare types of KV cells on contexts of 2,048 tokens, such as "
        "f16,q8_0,q4_0,k:q8_0/v:q4_0; the first is what others are measured against")  # fmt: skip
    add("--no-quality", action="store_true", help="speed and memory only")
    add("--time", type=reader(duration(10, 7 * 86_400)), metavar="TIME",
        help="what the run may take, such as 90s, 5m or 1h: if that is too short for everything, "
        "less is measured (5m; 75s with --quick, 1h with --thorough)")  # fmt: skip
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument(
        "--quick",
        action="store_true",
        help="fewer levels, one stream, fewer repetitions and less text",
    )
    effort.add_argument("--thorough", action="store_true", help="more repetitions")
    add("--max-kld", type=reader(number(0, math.inf)), metavar="NATS",
        help="divergence from the reference that a recommended level may have (0.05)")  # fmt: skip
    add("--out", metavar="DIR", help="write report.json, .md, .svg and .html there")
    add("--json", action="store_true", help="the report as JSON on standard output")
    add("--fresh", action="store_true", help="take no timings of an interrupted run")
    add("--cache-gb", type=reader(number(0, 1e9)), metavar="GB",
        help="limit of cached data: quantized files, reference rows (20)")  # fmt: skip
    add("--clean", action="store_true", help="remove what was kept, and do nothing else")
    add("--compare", nargs=2, metavar=("A.json", "B.json"),
        help="show what changed between two reports and whether it is real")  # fmt: skip
    add_options(
        parser,
        "catalog", "parallel", "threads", "threads_batch", "batch_size", "ubatch_size", "backend",
        "n_gpu_layers", "pooling", "device", "tensor_split", "split_mode", "main_gpu",
        "cache_type_k", "cache_type_v", "flash_attn", "mmap", "lora", "decisions_orders",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Measure and report; or compare two reports; or clean up."""
    from worker.bench.run.cache import DEFAULT_BYTES, BenchCache

    if arguments.compare:
        return _compare(*map(Path, arguments.compare), as_json=arguments.json)
    limit = DEFAULT_BYTES if arguments.cache_gb is None else arguments.cache_gb * _GB
    cache = BenchCache(cache_folder("bench"), int(limit))
    if arguments.clean:
        with cache.lock():
            sys.stderr.write(f"{machine.human_bytes(cache.clean())} removed from {cache.folder}\n")
        return 0
    from worker.bench.report.documents import write_report
    from worker.bench.run.bench import Bench
    from worker.cli.bench_table import hand_over, report_table, summary, watch

    questions: str | None = arguments.asked  # `decisions` is the setting
    if questions is not None and is_gguf(questions):  # the model, written behind the option
        arguments.models.insert(0, questions)
        questions = ""
    plan, makes_vectors = _plan(arguments)
    out = _folder(arguments.out)
    if questions is not None:
        from worker.cli.bench_decisions import compare

        if makes_vectors:
            raise UsageError("An embedding model decides nothing.", hint="Leave --decisions out.")
        with raising_stop_signals():
            return compare(plan, cache, questions, out, as_json=arguments.json)
    if arguments.cells:
        from worker.cli.bench_cells import compare as compare_cells

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
    from worker.bench.embedding import EmbeddingBench, write_vectors
    from worker.cli.bench_table import hand_over, vector_table, watch

    with raising_stop_signals():
        report = watch(EmbeddingBench(plan, cache).events(), vector_table)
    hand_over(report, write_vectors, out, vector_table, as_json=as_json)
    return 0


def _plan(arguments: argparse.Namespace) -> tuple[BenchPlan, bool]:
    """What will be run, and whether it is about vectors."""
    from worker.bench.plan import GENERAL_TEXT, BenchPlan, open_corpus, with_adapters
    from worker.bench.quality.questions import open_questions
    from worker.bench.report.verdict import DEFAULT_MAX_KLD
    from worker.bench.sizes import EFFORTS
    from worker.model.config import load_config

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
        from worker.gguf.imatrix import read_imatrix

        read_imatrix(arguments.imatrix)
    corpus = None
    own = open_questions(Path(arguments.questions)) if arguments.questions else None
    asks = len(levels) > 1 or arguments.text or own or makes_vectors or arguments.cells
    if not arguments.no_quality and asks:
        default = HELDOUT_PATH if is_demo else GENERAL_TEXT
        corpus = open_corpus(Path(arguments.text) if arguments.text else default)
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
    return plan, makes_vectors


def levels_of(
    arguments: argparse.Namespace, settings: Settings
) -> tuple[tuple[Level, ...], Path | None]:
    """Levels and, where they are made here, their source."""
    from worker.bench.plan import (
        QUICK_QUANTS,
        levels_of_files,
        levels_of_source,
        paths_by_name,
    )

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
    from worker.hub.locate import local_files

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
    from worker.bench.report.changes import changes_between, read_report
    from worker.cli.bench_table import changes_table

    changes = changes_between(read_report(before), read_report(after))
    if as_json:
        write_json(changes)
    else:
        data_console().print(changes_table(changes))
    return 0
