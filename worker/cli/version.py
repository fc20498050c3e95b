"""worker version: what is installed, and which backends and devices it has."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import version as installed

from worker import __version__, machine
from worker.cli.console import data_console, new_table, write_json
from worker.llama import library, soundness, variants
from worker.llama.calibrate import known_calibrations
from worker.llama.soundness import Soundness
from worker.machine import human_bytes


def run(arguments: argparse.Namespace) -> int:
    """Print the facts, read from the library itself."""

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
            "attention": known_calibrations(),
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
        console.print("accepts no images and audio: `make install MTMD=1` adds libmtmd")
    console.print(f"CPU: {machine.cpu()[0]}; {_proof_note(proof)}")
    if shapes := len(known_calibrations()):
        measured = "1 head shape" if shapes == 1 else f"{shapes} head shapes"
        console.print(f"attention: measured here for {measured}; `--json` lists them")
    if build.variant:
        able, every = variants.rank_variants(library.FOLDER), variants.variant_names(library.FOLDER)
        console.print(f"CPU variant: {build.variant}; {len(able)} of {len(every)} run here")
    table = new_table("device", "kind", "backend", "memory", "description", box=None)
    for device in devices:
        memory = human_bytes(device.memory_total) if device.memory_total else "–"
        table.add_row(device.name, device.kind, device.backend, memory, device.description)
    console.print(table)
    return 0


def _proof_note(proof: Soundness | None) -> str:
    """What is known of this library on this CPU."""
    if proof is None:
        return "the self-test of llama.cpp has not run yet: the first start runs it"
    if not proof.is_sound:
        return f"llama.cpp failed its self-test: it {proof.problem}"
    return (
        f"llama.cpp uses {', '.join(proof.features)}; self-test passed {proof.proven}, "
        f"{proof.cases} cases in {proof.seconds:.1f} s"
    )
