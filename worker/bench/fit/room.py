"""The bytes that a worker's context leaves to the weights."""

from __future__ import annotations

from worker import machine
from worker.errors import UsageError
from worker.machine import human_bytes
from worker.memory.plan import estimate
from worker.model.config import ModelConfig
from worker.settings import Settings


def weights_room(config: ModelConfig, settings: Settings, nbytes: int) -> int:
    """What is left of `nbytes` beside all that a worker with these settings takes. Raises
    UsageError where nothing is."""
    plan = estimate(config, settings, machine.memory())
    rest = plan.total_bytes - plan.weights_bytes
    if rest >= nbytes:
        raise UsageError(
            f"The context alone takes {human_bytes(rest)} of the {human_bytes(nbytes)}.",
            hint="Allow more memory, fewer cells with --ctx-size, or smaller ones with --cells.",
            code="TOO_SMALL",
        )
    return nbytes - rest
