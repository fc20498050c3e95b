"""The bytes that a worker's context leaves to the weights."""

from __future__ import annotations

from worker import machine
from worker.errors import UsageError
from worker.lifecycle.buffers import asking, plan_in_child
from worker.machine import human_bytes
from worker.memory.plan import MemoryPlan, estimate
from worker.model.config import ModelConfig
from worker.settings import Settings


def weights_room(config: ModelConfig, settings: Settings, nbytes: int) -> int:
    """What is left of `nbytes` beside all that a worker with these settings takes. Raises
    UsageError where nothing is."""
    free = machine.memory()

    def ask_and_fit() -> MemoryPlan:
        with asking(config) as ask:
            return estimate(config, settings, free, ask=ask)

    plan = plan_in_child(ask_and_fit, MemoryPlan) or estimate(config, settings, free)
    rest = plan.total_bytes - plan.weights_bytes
    if rest >= nbytes:
        raise UsageError(
            f"The context alone takes {human_bytes(rest)} of the {human_bytes(nbytes)}.",
            hint="Allow more memory, fewer cells with --ctx-size, or smaller ones with --cells.",
            code="TOO_SMALL",
        )
    return nbytes - rest
