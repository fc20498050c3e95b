"""worker version: what is installed, and which backends and devices it has."""

from __future__ import annotations

import argparse
import platform
from typing import Any

from worker import __version__
from worker.machine import human_bytes


def add_parser(commands: Any, line: str) -> None:
    """Register the command; `line` is its help in one line."""
    parser = commands.add_parser(
        "version",
        help=line,
        description="Versions, the backends of the installed llama.cpp and the devices they see.",
        epilog="Example: worker version --json",
    )
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the facts, read from the library itself."""
    from importlib.metadata import version as installed

    from rich.table import Table

    from worker.cli.console import data_console, write_json
    from worker.llama import library, variants

    build, devices = library.build(), library.devices()
    if arguments.json:
        report = {
            "version": __version__,
            "python": platform.python_version(),
            "packages": {name: installed(name) for name in ("llama-cpp-python", "gguf")},
            "build": build,
            "devices": devices,
        }
        write_json(report)
        return 0
    console = data_console()
    console.print(f"worker {__version__}, llama-cpp-python {build.bindings}")
    console.print(f"backends: {', '.join(build.backends)}")
    if build.variant:
        able, every = variants.ranked(library.FOLDER), variants.found(library.FOLDER)
        console.print(f"CPU variant: {build.variant}; {len(able)} of {len(every)} run here")
    table = Table("device", "kind", "backend", "memory", "description", box=None)
    for device in devices:
        memory = human_bytes(device.memory_total) if device.memory_total else "–"
        table.add_row(device.name, device.kind, device.backend, memory, device.description)
    console.print(table)
    return 0
