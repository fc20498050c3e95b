"""worker version: what is installed, and which backends and devices it has."""

from __future__ import annotations

import argparse
import platform
from typing import TYPE_CHECKING

from worker import __version__, machine
from worker.cli.calibrate import told
from worker.cli.console import data_console, new_table, write_json
from worker.machine import human_bytes

if TYPE_CHECKING:
    from worker.llama.soundness import Soundness


DESCRIPTION = (
    "Versions, the backends of the installed llama.cpp and the devices they see, "
    "which features of this CPU it uses, since when that is proven, and which attention is "
    "faster here, as far as that is measured."
)
EXAMPLE = "Example: worker version --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="machine-readable output")


def run(arguments: argparse.Namespace) -> int:
    """Print the facts, read from the library itself."""
    from importlib.metadata import version as installed

    from worker.llama import library, soundness, variants
    from worker.llama.calibrate import kept

    build, devices = library.build(), library.devices()
    proof = soundness.recall(soundness.key(build.variant))
    if arguments.json:
        report = {
            "version": __version__,
            "python": platform.python_version(),
            "packages": {name: installed(name) for name in ("llama-cpp-python", "gguf")},
            "build": build,
            "media": library.reads_media(),
            "cpu": machine.cpu()[0],
            "proof": proof,
            "attention": kept(),
            "devices": devices,
        }
        write_json(report)
        return 0
    console = data_console()
    bindings, _, upstream = build.bindings.partition("+")
    own = f", llama.cpp {upstream}" if upstream else ""
    console.print(f"worker {__version__}, llama-cpp-python {bindings}{own}")
    console.print(f"backends: {', '.join(build.backends)}")
    if not library.reads_media():
        console.print("reads no pictures and sounds: `make install MTMD=1` adds libmtmd")
    console.print(f"CPU: {machine.cpu()[0]}; {_proven(proof)}")
    for found in kept():
        console.print(f"attention: {told(found)}")
    if build.variant:
        able, every = variants.ranked(library.FOLDER), variants.found(library.FOLDER)
        console.print(f"CPU variant: {build.variant}; {len(able)} of {len(every)} run here")
    table = new_table("device", "kind", "backend", "memory", "description", box=None)
    for device in devices:
        memory = human_bytes(device.memory_total) if device.memory_total else "–"
        table.add_row(device.name, device.kind, device.backend, memory, device.description)
    console.print(table)
    return 0


def _proven(proof: Soundness | None) -> str:
    """What is known of this library on this CPU."""
    if proof is None:
        return "llama.cpp is not proven on it yet: the first start does that"
    if not proof.is_sound:
        return f"llama.cpp is not sound on it: it {proof.problem}"
    return (
        f"llama.cpp uses {', '.join(proof.features)}; proven {proof.proven} in "
        f"{proof.cases} cases, {proof.seconds:.1f} s"
    )
