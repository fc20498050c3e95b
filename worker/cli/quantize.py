"""worker quantize: write a model in another encoding."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker import machine
from worker.cli.console import data_console, pairs, write_json
from worker.cli.model import model_path
from worker.cli.options import add_options, settings_from
from worker.cli.progress import load_progress
from worker.errors import UsageError, quantity
from worker.machine import human_bytes

if TYPE_CHECKING:
    from worker.llama.quantize.plan import QuantizePlan


DESCRIPTION = (
    "Quantizes a GGUF file with llama.cpp. The result gets its name once it is "
    "complete; an interruption leaves no file with that name."
)
EXAMPLE = "Example: worker quantize model-f16.gguf model-Q4_K_M.gguf Q4_K_M"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SRC", help="GGUF file or model's name, best in F16, BF16 or F32"
    )
    parser.add_argument("target", metavar="DST", help="file to write")
    parser.add_argument(
        "type", metavar="TYPE", help="Q4_K_M, Q8_0, IQ4_XS, ...; any of llama.cpp's"
    )
    parser.add_argument(
        "--imatrix", metavar="FILE", help="importance matrix, made with worker imatrix"
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
    add_options(parser, "catalog", "threads")


def run(arguments: argparse.Namespace) -> int:
    """Write the file, or with --dry-run say what it would be. Raises UsageError."""
    from worker.llama.quantize.plan import QuantizeOptions, plan
    from worker.llama.quantize.target import quantize

    if not arguments.target:
        raise UsageError("DST is empty.", hint="Name the file to write.")
    arguments.model = arguments.source
    settings = settings_from(arguments)
    threads = settings.threads or machine.usable_cpus()
    source = model_path(settings)
    options = QuantizeOptions(
        imatrix=Path(arguments.imatrix) if arguments.imatrix else None,
        allow_requantize=arguments.allow_requantize,
        leave_output_tensor=arguments.leave_output_tensor,
        pure=arguments.pure,
    )
    if arguments.dry_run:
        made = plan(source, arguments.type, threads=threads, options=options)
    else:
        with _progress(Path(arguments.target).name) as report:
            made = quantize(
                source, Path(arguments.target), arguments.type, threads=threads,
                options=options, replace=arguments.force, on_progress=report,
            )  # fmt: skip
    if arguments.json:
        write_json(made)
    else:
        data_console().print(_table(made, dry_run=arguments.dry_run))
    return 0


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
    with load_progress(name, "quantising") as bar:

        def report(share: float) -> None:
            nonlocal upcoming
            bar(share)
            if share >= upcoming and not sys.stderr.isatty():
                sys.stderr.write(f"quantising {name}: {share:.0%}\n")
                upcoming = next((quarter for quarter in quarters if quarter > share), 2.0)

        yield report
