"""worker pull: bring models from the Hub to this machine."""

from __future__ import annotations

import argparse

from worker import machine
from worker.cli.console import data_console, new_table, plain, write_json
from worker.cli.options import settings_from
from worker.cli.progress import pull_progress
from worker.errors import DownloadError, UsageError
from worker.hub.catalog import Catalog, load_catalog
from worker.hub.locate import local_files
from worker.hub.name import parse
from worker.hub.pull import Pulled, check, find, pull
from worker.machine import human_bytes


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
