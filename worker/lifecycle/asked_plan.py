"""The plan of a start with memory to spare: estimated at first, for to ask llama.cpp takes 0.1 to
0.2 s of CPU time, and asked for once the worker is ready and nobody uses it.

It is asked in a thread, not in a child: a child needs five times as much, and none can be started
inside of `--sandbox`. Nor is there a danger in it: such a start knows the architecture.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from msgspec.structs import replace

from worker import log
from worker.lifecycle.buffers import asking
from worker.lifecycle.prepared import Prepared, buffer_places
from worker.memory.contexts import ContextBytes, Wanted
from worker.memory.plan import MemoryPlan, estimate
from worker.model.architectures import doubt
from worker.settings import Settings

# Before the first try; twice as long before each further one, up to the second.
_QUIET_S = 1.0, 60.0
_log = log.get("plan")


class _Disturbed(Exception):  # noqa: N818  (somebody came, nothing has failed)
    """A request came."""


async def ask_when_idle(
    prepared: Prepared, settings: Settings, is_idle: Callable[[], bool]
) -> MemoryPlan:
    """The plan that was prepared, with llama.cpp's own sizes. As it is where it has them already,
    where they cannot be had, or where another context, or others on GPUs, would follow from them.

    is_idle: nobody asks; any thread may call it
    """
    plan, (seconds, most) = prepared.plan, _QUIET_S
    if plan.is_asked or (prepared.draft is not None and doubt(prepared.draft.architecture)):
        return plan
    while True:
        await asyncio.sleep(seconds)
        seconds = min(2 * seconds, most)
        is_over = threading.Event()

        def may_ask(is_over: threading.Event = is_over) -> bool:
            return is_idle() and not is_over.is_set()

        try:
            asked = await asyncio.to_thread(_ask, prepared, settings, may_ask)
            break
        except _Disturbed:
            continue
        except Exception as error:  # noqa: BLE001  (a worker that serves goes on without)
            _log.warning("llama.cpp did not say what contexts take", reason=str(error))
            return plan
        finally:
            is_over.set()  # whoever does not wait any more wants no further question
    if asked.choices != plan.choices:
        _log.warning("the estimated plan is kept", reason="llama.cpp's sizes would change it")
        return plan
    _log.info("plan", console="", planned_mb=round(asked.total_bytes / 1e6), asked=True)
    return asked


def _ask(prepared: Prepared, settings: Settings, may_ask: Callable[[], bool]) -> MemoryPlan:
    """In a thread. Raises _Disturbed, and what `asking` raises."""

    def ask_if_idle(wanted: Wanted) -> ContextBytes:
        if not may_ask():
            raise _Disturbed
        return ask(wanted)

    if not may_ask():
        raise _Disturbed
    config, draft = prepared.config, prepared.draft
    adapters = [adapter.config for adapter in prepared.adapters]
    chosen = replace(settings, draft=prepared.guesses)
    with asking(config, draft) as ask:
        memory, projector = prepared.memory, prepared.projector
        places = buffer_places(config, settings, prepared.devices, draft)
        return estimate(config, chosen, memory, draft, adapters, projector, ask_if_idle, places)
