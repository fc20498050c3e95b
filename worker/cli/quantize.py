"""worker quantize: write a model in another encoding."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import msgspec

from worker import machine
from worker.bench.fit.fit import At, BestFit, FitOptions, FitReport, matrix_beside
from worker.bench.fit.recipe import read_recipe
from worker.bench.fit.room import weights_room
from worker.bench.plan import GENERAL_TEXT, open_corpus
from worker.cli.console import data_console, new_table, pairs, with_title, write_json
from worker.cli.model import model_path
from worker.cli.options import settings_from
from worker.cli.progress import load_progress, stage_progress
from worker.cli.stop_signals import raising_stop_signals
from worker.demo import HELDOUT_PATH
from worker.errors import BackendError, UsageError, quantity
from worker.gguf.splits import open_header
from worker.llama.quantize.plan import QuantizeOptions, QuantizePlan, plan
from worker.llama.quantize.target import quantize
from worker.machine import human_bytes
from worker.model.config import load_config
from worker.settings import Settings


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
    is_fit = arguments.fit is not None or arguments.bits is not None
    with raising_stop_signals():
        return (_fit if is_fit else _quantize)(arguments, settings, source)


def _quantize(arguments: argparse.Namespace, settings: Settings, source: Path) -> int:

    threads = settings.threads or machine.usable_cpus()
    options = QuantizeOptions(
        imatrix=Path(arguments.imatrix) if arguments.imatrix else None,
        allow_requantize=arguments.allow_requantize,
        leave_output_tensor=arguments.leave_output_tensor,
        pure=arguments.pure,
    )
    kind = arguments.type
    if arguments.recipe:
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
    try:
        report = _follow(options)
    except KeyboardInterrupt:
        _tell_kept(options)
        raise
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


def _follow(options: FitOptions) -> FitReport:
    """Run the fit and show how far it is."""
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
    return report


def _tell_kept(options: FitOptions) -> None:
    """Name the matrix that an interrupted fit leaves."""
    matrix = matrix_beside(options.target)
    if options.imatrix is None and not options.dry_run and matrix.exists():
        sys.stderr.write(f"{matrix} is kept: pass it with --imatrix to save its time.\n")


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
