"""Clients that come at a bounded rate, and rest while the worker is looked at."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from checks.soak.clients import KINDS, Clients, WrongError
from checks.soak.wire import WireError

MOST_AT_ONCE = 16
# No client is made to wait longer for anything: that is a hang.
PATIENCE_S = 60.0
_BURST = 0.05  # of all arrivals: several come at once


class Load:
    """On the event loop. `came`: what became of them; `wrong`: what must not be, with its text."""

    def __init__(self, host: str, port: int, rate: float, seed: int) -> None:
        """rate: clients a second, while they do not rest"""
        self._draw = random.Random(seed)
        self.clients = Clients(host, port, self._draw)
        self.came: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.num_begun = 0
        self._rate = rate
        self._open = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until it is cancelled."""
        names = list(KINDS)
        weights = [weight for weight, _ in KINDS.values()]
        while True:
            await self._open.wait()
            count = self._draw.randint(2, 12) if self._draw.random() < _BURST else 1
            for _ in range(count):
                if len(self._running) < MOST_AT_ONCE:
                    self._begin(self._draw.choices(names, weights)[0])
            await asyncio.sleep(self._draw.expovariate(self._rate) * count)

    def go_on(self) -> None:
        """Clients come."""
        self.clients.resting.clear()
        self._open.set()

    async def rest(self) -> None:
        """No client comes, those that are there end what they do, and no connection is left."""
        self._open.clear()
        self.clients.resting.set()
        while self._running:
            await asyncio.wait(set(self._running))
        self.clients.close()

    def _begin(self, kind: str) -> None:
        task = asyncio.ensure_future(self._one(kind))
        self.num_begun += 1
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _one(self, kind: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                self.came[await self.clients.do(kind)] += 1
        except TimeoutError:
            self.wrong[f"{kind}: no answer within {PATIENCE_S:g} s"] += 1
        except WrongError as error:
            self.wrong[f"{kind}: {error}"] += 1
        except (WireError, OSError) as error:
            if kind in ("leaves", "wrong"):
                # The worker may close before a wrong request is sent, and who leaves is not told.
                self.came[f"{kind}: closed"] += 1
            else:
                self.wrong[f"{kind}: {type(error).__name__}: {error}"] += 1
        except Exception as error:  # noqa: BLE001  (an answer that cannot be read)
            self.wrong[f"{kind}: {type(error).__name__}: {error}"[:300]] += 1
