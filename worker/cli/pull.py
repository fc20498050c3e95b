"""worker pull: bring models from the Hub to this machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from worker import machine
from worker.cli.console import data_console, new_table, plain, write_json
from worker.cli.options import add_options, settings_from
from worker.cli.progress import pull_progress
from worker.errors import DownloadError, UsageError
from worker.hub.catalog import load_catalog
from worker.hub.name import parse
from worker.machine import human_bytes

if TYPE_CHECKING:
    from worker.hub.catalog import Catalog
    from worker.hub.pull import Pulled


DESCRIPTION = (
    "Download GGUF files into the Hub's cache (HF_HOME), checksum and header "
    "checked; what was interrupted goes on where it stopped. A model is NAME[:QUANT] of the "
    "catalogue, ORGANIZATION/REPOSITORY[@REVISION][:QUANT], or "
    "hf:ORGANIZATION/REPOSITORY[@REVISION]::file=FILE.gguf. Without QUANT it is the largest "
    "encoding up to Q8_0 that fits here with some context: 1.2 times the file and 512 MiB "
    "within the available memory of the host; that of GPUs is not counted. Files above 50 GB "
    "are left to the Hub's own `hf download`. The projector beside it comes too, but with "
    "--no-mmproj. HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE count."
)
EXAMPLE = "Example: worker pull tinyllama:Q4_K_M && worker serve --model tinyllama:Q4_K_M"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL", help="what to bring")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="show the catalogue and what is here")
    what.add_argument(
        "--check",
        action="store_true",
        help="ask the Hub whether it has the files that the catalogue names (of all models, or of "
        "those given)",
    )
    add_options(parser, "catalog", "mmproj_auto")
    parser.add_argument("--json", action="store_true", help="machine-readable output")


def run(arguments: argparse.Namespace) -> int:
    """Bring the models one after the other. The first failure ends the command. Raises
    UsageError."""

    settings = settings_from(arguments)
    catalog = load_catalog(settings.catalog)
    if arguments.list:
        return _list(catalog, arguments)
    if arguments.check:
        return _check(catalog, arguments)
    if not arguments.models:
        raise UsageError("No model is named.", hint="`worker pull --list` shows what can be named.")
    return _pull(catalog, arguments, projector=settings.mmproj_auto)


def _pull(catalog: Catalog, arguments: argparse.Namespace, *, projector: bool) -> int:
    from worker.hub.pull import find, pull

    memory = machine.memory()
    # All names are checked before the first model takes minutes.
    wanted = [find(parse(text), catalog, memory, projector=projector) for text in arguments.models]
    done: list[Pulled] = []
    for model in wanted:
        with pull_progress() as report:
            done.append(pull(model, report))
        if not arguments.json:
            data_console().print(plain(_sentence(done[-1])), soft_wrap=True)
    if arguments.json:
        write_json(done)
    return 0


def _sentence(pulled: Pulled) -> str:

    size = human_bytes(pulled.size_bytes)
    fetched = human_bytes(pulled.fetched_bytes) if pulled.fetched_bytes else "nothing"
    return f"{pulled.name}  {size}, {fetched} fetched  {pulled.path}"


def _list(catalog: Catalog, arguments: argparse.Namespace) -> int:

    from worker.hub.locate import local_files

    names = [_name(text, catalog) for text in arguments.models] or list(catalog.entries)
    entries = {name: catalog.entries[name] for name in names}
    here = {name: local_files(entry) for name, entry in entries.items()}
    if arguments.json:
        write_json(
            {
                name: {"entry": entry, "here": {q: str(path) for q, path in here[name].items()}}
                for name, entry in entries.items()
            }
        )
        return 0
    table = new_table("name", box=None)
    table.add_column("parameters", justify="right")
    table.add_column("context", justify="right")
    for heading in ("license", "encodings", "here"):
        table.add_column(heading, overflow="fold")
    for name, entry in entries.items():
        table.add_row(
            name, f"{entry.parameters / 1e9:.2f} B", f"{entry.context:,}", entry.license,
            " ".join(entry.labels), " ".join(here[name]),
        )  # fmt: skip
    data_console().print(table)
    return 0


def _check(catalog: Catalog, arguments: argparse.Namespace) -> int:

    from worker.hub.pull import check

    names = [_name(text, catalog) for text in arguments.models] or list(catalog.entries)
    report = {name: check(catalog.entries[name]) for name in names}
    if arguments.json:
        write_json(report)
    else:
        table = new_table("name", "files found", "not found", box=None)
        for name, found in report.items():
            lacking = found.problem or "\n".join(found.missing)
            table.add_row(name, str(found.found), lacking)
        data_console().print(table)
    wrong = [name for name, found in report.items() if not found.is_right]
    if wrong:
        raise DownloadError(
            f"The Hub does not have all files of {', '.join(wrong)}.",
            hint="Correct models.toml, or name a file: hf:ORGANIZATION/REPOSITORY::file=NAME.gguf",
            code="FILE_NOT_FOUND",
        )
    return 0


def _name(text: str, catalog: Catalog) -> str:
    name = text.partition(":")[0].lower()
    catalog.find(name)
    return name
