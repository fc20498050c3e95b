"""worker calibrate: measure which attention is faster for a model's heads on this CPU."""

from __future__ import annotations

import argparse
from typing import Any

from worker.cli.console import data_console, new_table, write_json
from worker.cli.model import model_path
from worker.cli.options import settings_from
from worker.errors import BackendError
from worker.lifecycle.loading import attention_shape
from worker.llama import library
from worker.llama.calibrate import Calibration, calibrate
from worker.model.config import load_config


def run(arguments: argparse.Namespace) -> int:
    """Measure, keep and print. Raises BackendError where that cannot be."""

    arguments.model = arguments.file
    settings = settings_from(arguments)
    config = load_config(model_path(settings))
    library.proof().verdict().require()  # before anything is computed
    found = calibrate(attention_shape(config, settings))
    if found is None:
        raise BackendError(
            "Attention could not be measured.", hint="Start again when the machine is less busy."
        )
    if arguments.json:
        write_json(found)
        return 0
    console = data_console()
    console.print(summary(found))
    console.print(_table(found))
    return 0


def summary(found: Calibration) -> str:
    """What was measured and what follows from it, in a line."""
    return (
        f"{found.shape}: {found.attention} attention; plain takes {found.ratio:.2f} of the time of "
        f"fused, measured {found.measured} in {found.seconds:.1f} s"
    )


def _table(found: Calibration) -> Any:

    table = new_table("rows", "tokens before", "fused, ms", "plain, ms", box=None)
    for step in found.steps:
        times = (f"{1e3 * seconds:.3f}" for seconds in (step.fused_s, step.plain_s))
        table.add_row(str(step.rows), str(step.depth), *times)
    return table
