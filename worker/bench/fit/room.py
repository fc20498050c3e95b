"""The bytes that a worker's context leaves to the weights, and those that finding a mix takes."""

from __future__ import annotations

import msgspec

from worker import machine
from worker.errors import UsageError
from worker.lifecycle.buffers import asking, plan_in_child
from worker.machine import human_bytes
from worker.memory.plan import MemoryPlan, estimate
from worker.model.config import ModelConfig
from worker.settings import Settings

_ROWS_HELD = (
    3  # times that a window's logits are held in Python: with the reference, and while compared
)


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


def fit_memory(config: ModelConfig, settings: Settings, window: int, *, is_quantized: bool) -> int:
    """The most that one process of a fit holds: the one of the probes, whose weights are no map of
    the file, with rows of `window` tokens. A source that is quantized is F16 there."""
    alone = msgspec.structs.replace(
        settings, parallel=1, ctx_size=window, batch_size=window, ubatch_size=window, draft="none",
        mmap=False,
    )  # fmt: skip
    plan = estimate(config, alone, machine.memory())
    weights = max(plan.weights_bytes, 2 * config.n_params if is_quantized else 0)
    rows = _ROWS_HELD * window * config.vocab_size * 4
    return plan.total_bytes - plan.weights_bytes + weights + rows
