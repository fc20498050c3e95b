"""A request's way to a replica and back, byte for byte.

Before the first byte of an answer another replica may be asked; after it nobody can know what the
client has made of the first ones. What a client's leaving closes is the connection to the worker,
which ends the work within a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set

from worker.api.common.shapes.by_path import shaped
from worker.errors import QueueFullError, UnavailableError
from worker.fleet.front import jobs
from worker.fleet.front.asked import prefix_of, session_of
from worker.fleet.front.call import ClientCall
from worker.fleet.front.connection import HeaderList, LostError
from worker.fleet.front.events import WholeEvents
from worker.fleet.front.loads import Loads, Others
from worker.fleet.front.meters import Meters
from worker.fleet.front.pulse import QUIET_S, Pulse
from worker.fleet.front.recovery import Recovery
from worker.fleet.front.upstream import Upstream, WorkerReply
from worker.fleet.roster import Roster
from worker.fleet.routing import Homes, Member
from worker.fleet.scale.waiting import WaitingRoom
from worker.http import paths, sse
from worker.http.replies import reply_of_ours
from worker.lines import encoded

# Replicas that are asked for one request, at most.
_TRIES = 4
# Answers after which another replica may do better: full, loading, leaving.
_NOT_READY = 503
_REFUSALS = frozenset({429, _NOT_READY})
_ABSENT = frozenset({404})
_SESSION = b"x-session-id"
_HEALTH = "/health"
_PATIENCE_S = 2.0

# (status, body, headers)
Refusal = tuple[int, bytes, HeaderList]
Ranked = Callable[[], Sequence[Member]]


class Relay:
    """Chooses replicas, asks them, and passes on what they say."""

    def __init__(self, roster: Roster, upstream: Upstream, meters: Meters, *, shares: bool) -> None:
        """shares: other gateways ask the same replicas"""
        self._roster = roster
        self._upstream = upstream
        self._meters = meters
        self._room = WaitingRoom(roster)
        self.loads = Loads()
        self._homes = Homes()
        self._recovery = Recovery(self._is_well)
        self._pulse = Pulse(upstream.owing, self._answers, self._recovery.note_failure)
        self._others = Others(roster, self.loads, self._health) if shares else None

    async def to_model(self, call: ClientCall, model: str) -> None:
        """Answer by a replica of the model. Raises QueueFullError where all of them are full,
        UnavailableError where there is none, or none answers."""
        members = await self._room.members(call, model)
        key = self._key(call, self._roster.affinities[model])

        def ranked() -> Sequence[Member]:
            found = self._homes.order(members, self.loads.all, key, self._recovery.failing)
            if not found:
                raise QueueFullError(f"All {len(members)} replicas of {model} are full.")
            return found[:_TRIES]

        await self._first(call, model, ranked, _REFUSALS)

    async def to_replica(self, call: ClientCall, model: str, member: Member) -> None:
        """Answer by this replica, whatever it says. Raises UnavailableError."""
        await self._first(call, model, lambda: [member], frozenset())

    async def to_holder(self, call: ClientCall, members: Sequence[Member]) -> None:
        """Answer by the first that has what is asked for. Raises UnavailableError."""
        await self._first(call, "", lambda: members, _ABSENT)

    async def short(
        self,
        member: Member,
        method: str,
        target: str,
        body: bytes = b"",
        patience: float = _PATIENCE_S,
    ) -> tuple[int, bytes] | None:
        """Status and body of an answer that comes at once; None where none does."""
        try:
            async with (
                asyncio.timeout(patience),
                self._upstream.ask(member, method, target, [], body) as reply,
            ):
                return reply.status, await reply.whole()
        except (LostError, TimeoutError):
            return None

    def close(self) -> None:
        """Watch nobody any more."""
        self._recovery.close()
        self._pulse.close()
        if self._others is not None:
            self._others.close()

    async def _is_well(self, member: Member) -> bool:
        # One that is not there any more is nobody's to watch.
        is_there = self._roster.find(member.id) is not None
        return not is_there or bool(await self._health(member))

    async def _answers(self, member: Member) -> bool:
        return await self.short(member, "GET", _HEALTH, patience=QUIET_S) is not None

    async def _health(self, member: Member) -> bytes:
        """What the worker says; nothing where it is not well."""
        said = await self.short(member, "GET", _HEALTH)
        return said[1] if said is not None and said[0] == 200 else b""

    def _key(self, call: ClientCall, affinity: str) -> bytes | None:
        if affinity == "prefix":
            return prefix_of(call.asked)
        if affinity == "session":
            return session_of(call.asked, call.header(_SESSION))
        return None

    async def _first(
        self, call: ClientCall, model: str, ranked: Ranked, refusals: Set[int]
    ) -> None:
        """Answer by the first that accepts; with the last refusal where none does.

        ranked    whom to ask, called when it is: of two requests at once the second one then knows
                  of the first
        refusals  statuses after which the next one is asked
        """
        task = asyncio.current_task()
        assert task is not None
        if call.wire.is_cut:
            self._meters.left(model)
            return
        try:
            with call.wire.watched(task.cancel):
                refusal = await self._ask_all(call, model, ranked, refusals)
        except asyncio.CancelledError:
            if not call.wire.is_cut:
                raise
            task.uncancel()
            self._meters.left(model)
            return
        if refusal is not None:
            await call.answer(*refusal)

    async def _ask_all(
        self, call: ClientCall, model: str, ranked: Ranked, refusals: Set[int]
    ) -> Refusal | None:
        refusal: Refusal | None = None
        for turn, member in enumerate(ranked()):
            if turn:
                self._meters.retried(model)
            try:
                refusal = await self._ask(call, model, member, refusals)
            except LostError:
                self._recovery.note_failure(member)
                continue
            if refusal is None:
                return None
            if refusal[0] == _NOT_READY:
                self._recovery.note_failure(member)
        if refusal is None:
            raise UnavailableError("The replicas that were asked do not answer.", code="lost")
        return refusal

    async def _ask(
        self, call: ClientCall, model: str, member: Member, refusals: Set[int]
    ) -> Refusal | None:
        """Pass the request on; what it was refused with. Raises LostError before the first byte."""
        body = jobs.named(call.body, member.id) if call.path in jobs.STARTS else call.body
        with self.loads.taken(member.id):
            async with self._upstream.ask(
                member, call.method, call.target, call.headers, body
            ) as reply:
                if reply.status in refusals:
                    return reply.status, await reply.whole(), reply.headers
                self._meters.routed(model)
                await _pass_on(call, reply)
        return None


async def _pass_on(call: ClientCall, reply: WorkerReply) -> None:
    if call.is_waiting and reply.status != 200:
        await call.answer(reply.status, await reply.whole(), reply.headers)
        return
    await call.begin(reply.status, reply.headers)
    call.wire.follow(reply.connection)
    events = WholeEvents(call.wire.write, reply.kind) if reply.is_stream else None
    try:
        await reply.pass_to(call.wire.write if events is None else events.take)
    except LostError:
        if events is None:
            raise ConnectionError("The replica is gone in the middle of an answer.") from None
        call.wire.write(_broken_off(call.path, reply.kind))
    else:
        if events is not None:
            events.end()
    finally:
        call.wire.follow(None)
    await call.say(b"", more=False)


def _broken_off(path: str, kind: bytes) -> bytes:
    """What ends a stream whose replica is gone."""
    error = UnavailableError("The replica that generated this is gone.", code="replica_lost")
    status, reply, _ = reply_of_ours(error)
    told = shaped(path, status, reply)
    if kind != sse.CONTENT_TYPE.partition(b";")[0]:
        return encoded(told) + b"\n"
    name = "error" if path.startswith(paths.MESSAGES) else ""
    return sse.frame(told, name=name)
