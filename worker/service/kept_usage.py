"""Usage by key, over all starts of a worker with --state-dir."""

from __future__ import annotations

import asyncio

import msgspec

from worker import log
from worker.database.database import Database
from worker.database.usage import Counts, StoredUsage
from worker.errors import WorkerError
from worker.requests.journal import Outcomes
from worker.requests.views import AccountUsage

# Between two times that what changed is written: a kill loses no more.
_PERIOD_S = 5.0


class KeptUsage:
    """Adds what is stored to the sums of this start, once, and writes them from then on."""

    def __init__(self, database: Database, outcomes: Outcomes) -> None:
        self._stored, self._outcomes = StoredUsage(database), outcomes
        self._written: dict[str, Counts] | None = None  # None: what is stored is not known

    async def keep(self) -> None:
        """Read, then write again and again, until it is cancelled."""
        try:
            await self._read()
        except WorkerError as error:
            log.get("service").warning("usage begins anew", reason=str(error))
            return
        while True:
            await asyncio.sleep(_PERIOD_S)
            await self.write()

    async def write(self) -> None:
        """What changed; a full disk has it the next time."""
        if self._written is None:
            return
        sums = {name: _counts(used) for name, used in self._outcomes.usage.items()}
        changed = {name: sum_ for name, sum_ in sums.items() if self._written.get(name) != sum_}
        try:
            if changed:
                await self._stored.write(changed)
                self._written |= changed
        except WorkerError as error:
            log.get("service").debug("usage is not written", reason=str(error))

    async def _read(self) -> None:
        found = await self._stored.read()
        for name, counts in found.items():
            used = self._outcomes.usage.setdefault(name, AccountUsage())
            for field in AccountUsage.__struct_fields__:
                setattr(used, field, getattr(used, field) + counts.get(field, 0))
        self._written = found


def _counts(used: AccountUsage) -> Counts:
    return msgspec.to_builtins(used)
