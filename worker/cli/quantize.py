"""worker quantize: write a model in another encoding."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from worker import machine
from worker.cli.console import data_console, new_table, pairs, with_title, write_json
from worker.cli.model import model_path
from worker.cli.options import add_options, reader, settings_from
from worker.cli.progress import load_progress, stage_progress
from worker.demo import HELDOUT_PATH
from worker.errors import BackendError, UsageError, quantity
from worker.machine import human_bytes
from worker.settings import CACHE_TYPES, Settings
from worker.values import cells, duration, number, size

if TYPE_CHECKING:
    from worker.bench.fit.fit import FitReport
    from worker.llama.quantize.plan import QuantizePlan


DESCRIPTION = (
    "Quantizes a GGUF file with llama.cpp. The result gets its name once it is "
    "complete; an interruption leaves no file with that name. With --fit or --bits it finds the "
    "mix of encodings that harms least at that size, measures it on text that was not used, and "
    "keeps it if no preset of that size is better."
)
EXAMPLE = (
    "Examples: worker quantize model-f16.gguf model-Q4_K_M.gguf Q4_K_M; "
    "worker quantize model-f16.gguf model-fit.gguf --bits 4.3 --text mine.txt"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SRC", help="GGUF file or model's name, best in F16, BF16 or F32"
    )
    parser.add_argument("target", metavar="DST", help="file to write")
    parser.add_argument(
        "type", metavar="TYPE", nargs="?", help="Q4_K_M, Q8_0, IQ4_XS, ...; any of llama.cpp's"
    )
    parser.add_argument(
        "--imatrix", metavar="FILE", help="importance matrix, made with `worker imatrix`"
    )
    switches = (
        ("--allow-requantize", "also accept a source that is already quantized"),
        ("--leave-output-tensor", "keep output.weight as it is"),
        ("--pure", "one encoding for all matrices instead of llama.cpp's mix"),
        ("--dry-run", "only say what would be written"),
        ("--force", "replace DST where it exists"),
        ("--json", "machine-readable output"),
    )
    for flag, text in switches:
        parser.add_argument(flag, action="store_true", help=text)
    group = parser.add_argument_group("The best mix for a size")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--fit",
        metavar="SIZE",
        type=reader(size),
        help="find the best mix of this size, such as 6GiB; with --ctx-size the "
        "memory of a worker with that context",
    )
    which.add_argument(
        "--bits",
        metavar="B",
        type=reader(number(1, 16)),
        help="the same for a number of bits per weight, such as 4.3",
    )
    which.add_argument(
        "--recipe", metavar="FILE.json", help="apply the recipe that --fit wrote beside its file"
    )
    group.add_argument(
        "--text",
        metavar="FILE",
        nargs="+",
        action="extend",
        help="texts in UTF-8, such as the model will read: two thirds to choose by, "
        "the rest to measure",
    )
    group.add_argument(
        "--time",
        metavar="TIME",
        type=reader(duration(10, 7 * 86_400)),
        default=600.0,
        help="what --fit may take, such as 10m (10m)",
    )
    group.add_argument(
        "--cells",
        metavar="TYPE",
        type=reader(cells(*CACHE_TYPES)),
        default=("f16", "f16"),
        help="cells of that context: q8_0, or k:q8_0/v:q4_0 (f16)",
    )
    add_options(parser, "catalog", "threads", "ctx_size", "parallel")


def run(arguments: argparse.Namespace) -> int:
    """Write the file, or with --dry-run say what it would be. Raises UsageError."""
    if not arguments.target:
        raise UsageError("DST is empty.", hint="Name the file to write.")
    arguments.model = arguments.source
    settings = settings_from(arguments)
    source = model_path(settings)
    asked = [arguments.type, arguments.fit, arguments.bits, arguments.recipe]
    if sum(each is not None for each in asked) != 1:
        raise UsageError(
            "Name one of TYPE, --fit SIZE, --bits B and --recipe FILE.",
            hint="See `worker quantize --help`.",
        )
    if arguments.fit is None and settings.ctx_size is not None:
        raise UsageError(
            "--ctx-size is for --fit SIZE, the memory of a worker.", hint="Leave it out."
        )
    if arguments.fit is not None or arguments.bits is not None:
        return _fit(arguments, settings, source)
    return _quantize(arguments, settings, source)


def _quantize(arguments: argparse.Namespace, settings: Settings, source: Path) -> int:
    from worker.llama.quantize.plan import QuantizeOptions, plan
    from worker.llama.quantize.target import quantize

    threads = settings.threads or machine.usable_cpus()
    options = QuantizeOptions(
        imatrix=Path(arguments.imatrix) if arguments.imatrix else None,
        allow_requantize=arguments.allow_requantize,
        leave_output_tensor=arguments.leave_output_tensor,
        pure=arguments.pure,
    )
    kind = arguments.type
    if arguments.recipe:
        from worker.bench.fit.recipe import read_recipe
        from worker.gguf.splits import open_header

        path = Path(arguments.recipe)
        recipe = read_recipe(path, open_header(source))
        options = recipe.options(options.imatrix or path.with_name(recipe.imatrix))
        kind = recipe.type
    if arguments.dry_run:
        made = plan(source, kind, threads=threads, options=options)
    else:
        with _progress(Path(arguments.target).name) as report:
            made = quantize(
                source,
                Path(arguments.target),
                kind,
                threads=threads,
                options=options,
                replace=arguments.force,
                on_progress=report,
            )
    if arguments.json:
        write_json(made)
    else:
        data_console().print(_table(made, dry_run=arguments.dry_run))
    return 0


def _fit(arguments: argparse.Namespace, settings: Settings, source: Path) -> int:
    from worker.bench.fit.fit import At, BestFit, FitOptions, FitReport
    from worker.bench.fit.room import weights_room
    from worker.bench.plan import GENERAL_TEXT, open_corpus
    from worker.model.config import load_config

    config = load_config(source, purpose="serve")
    nbytes, (keys, values) = arguments.fit, arguments.cells
    if nbytes is not None and settings.ctx_size is not None:
        context = msgspec.structs.replace(settings, cache_type_k=keys, cache_type_v=values)
        nbytes = weights_room(config, context, nbytes)
    default = HELDOUT_PATH if config.card else GENERAL_TEXT
    corpora = [open_corpus(Path(name)) for name in arguments.text or [default]]
    options = FitOptions(
        source=source,
        target=Path(arguments.target),
        dry_run=arguments.dry_run,
        texts=tuple(Path(corpus.path).read_text("utf-8") for corpus in corpora),
        dataset=", ".join(corpus.name for corpus in corpora),
        settings=msgspec.structs.replace(settings, ctx_size=None, parallel=None),
        threads=settings.threads or machine.usable_cpus(),
        nbytes=nbytes,
        bits=arguments.bits,
        imatrix=Path(arguments.imatrix) if arguments.imatrix else None,
        seconds=arguments.time,
        allow_requantize=arguments.allow_requantize,
        replace=arguments.force,
    )
    report: FitReport | None = None
    with stage_progress() as show, contextlib.closing(BestFit(options).events()) as events:
        for event in events:
            if isinstance(event, FitReport):
                report = event
            elif isinstance(event, At):
                show(event.doing, event.share)
            else:
                sys.stderr.write(f"{event.text}\n")
    assert report is not None
    if arguments.json:
        write_json(report)
    else:
        data_console().print(fit_table(report))
    if report.better is not None:
        words = f"{arguments.source} {arguments.target} {report.better}"
        raise BackendError(
            f"{report.better} of at most that size diverges less, so the fit was not kept.",
            hint=f"Write it with `worker quantize {words}` and the same --imatrix, or allow more "
            "time or text.",
            code="PRESET_IS_BETTER",
        )
    return 0


def fit_table(report: FitReport) -> Any:
    """The fit beside the presets."""
    table = new_table("mix", "size", "bits", "KLD estimated", "KLD measured", "same top")
    for mix in (report.fit, *report.presets):
        table.add_row(
            mix.name,
            human_bytes(mix.file_bytes),
            f"{mix.bits:.2f}",
            f"{mix.estimate:.5f}",
            "-" if mix.kld is None else f"{mix.kld:.5f} ±{mix.error:.5f}",
            "-" if mix.same_top is None else f"{mix.same_top:.1%}",
        )
    told = ", ".join(f"{count} x {kind}" for kind, count in report.mix.items())
    stays = f"; as they are: {', '.join(report.unquantized)}" if report.unquantized else ""
    state = "kept" if report.kept else "nothing was written"
    return with_title(f"{Path(report.target).name}: {told}{stays} ({state})", table)


def _table(made: QuantizePlan, *, dry_run: bool) -> Any:

    rows = {
        "size": f"{human_bytes(made.file_bytes)} of {human_bytes(made.source_bytes)}, "
        f"{made.bits_per_weight:.2f} bits per weight",
        "mix": ", ".join(f"{share.tensors} x {name}" for name, share in made.mix.items()),
    }
    if made.needs_imatrix:
        rows["needs --imatrix"] = quantity(len(made.needs_imatrix), "tensor")
    if made.requantized:
        rows["quantized again"] = (
            f"{quantity(len(made.requantized), 'tensor')} (--allow-requantize)"
        )
    return pairs(
        f"{made.type_name} (dry run: nothing was written)" if dry_run else made.type_name, rows
    )


@contextlib.contextmanager
def _progress(name: str) -> Generator[Callable[[float], object]]:
    """A bar on stderr. Without a terminal one line at each quarter."""

    quarters = iter((0.25, 0.5, 0.75))
    upcoming = next(quarters)
    with load_progress(name, "quantizing") as bar:

        def report(share: float) -> None:
            nonlocal upcoming
            bar(share)
            if share >= upcoming and not sys.stderr.isatty():
                sys.stderr.write(f"quantizing {name}: {share:.0%}\n")
                upcoming = next((quarter for quarter in quarters if quarter > share), 2.0)

        yield report
