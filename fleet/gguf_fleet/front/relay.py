"""A request's way to a replica and back, byte for byte.

Before the first byte of an answer another replica may be asked. A stream whose replica is lost goes
on at another one, which is told what the client has: see `PartialAnswer`. What a client's leaving
closes is the connection to the worker, which ends the work within a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence, Set
from contextlib import contextmanager

import msgspec
from multidict import CIMultiDict

from gguf_fleet.errors import FleetError, RefusedError
from gguf_fleet.front import jobs
from gguf_fleet.front.asked import prefix_of, session_of
from gguf_fleet.front.call import EVENTS, ClientCall, event_of
from gguf_fleet.front.events import WholeEvents
from gguf_fleet.front.loads import Loads, Others
from gguf_fleet.front.meters import Meters
from gguf_fleet.front.partial import MARKS, WRITTEN, PartialAnswer
from gguf_fleet.front.pulse import QUIET_S, Pulse
from gguf_fleet.front.recovery import Recovery
from gguf_fleet.front.refusals import refusal_reply
from gguf_fleet.front.upstream import LostError, Upstream, WorkerReply
from gguf_fleet.roster import Roster
from gguf_fleet.routing import Homes, Member
from gguf_fleet.scale.waiting import PULSE_S, WaitingRoom

# Replicas that are asked for one request, at most.
_TRIES = 4
# Answers after which another replica may do better: full, loading, leaving.
_NOT_READY = 503
_REFUSALS = frozenset({429, _NOT_READY})
_ABSENT = frozenset({404})
_SESSION = "x-session-id"
_HEALTH = "/health"
_PATIENCE_S = 2.0
# For another replica to go on with a stream: the lost one may be the only one, and starts again.
_GO_ON_S = 60.0
_LOOK_S = 0.1
# Replicas that a stream may lose without a token more: it may be what ends them.
_FRUITLESS = 3
_PAUSE = b": another replica goes on\n\n"
_COMMENT = b":\n\n"

# (status, body, headers)
Refusal = tuple[int, bytes, CIMultiDict[str]]
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
        """Answer by a replica of the model. Raises RefusedError where all of them are full,
        there is none, or none answers."""
        members = await self._room.members(call, model)
        key = self._key(call, self._roster.affinities[model])

        def ranked() -> Sequence[Member]:
            found = self._homes.order(members, self.loads.all, key, self._recovery.failing)
            if not found:
                raise RefusedError(429, f"All {len(members)} replicas of {model} are full.")
            return found[:_TRIES]

        try:
            await self._first(call, model, ranked, _REFUSALS)
        except BrokenOffError as error:
            with self._count_leaver(model):
                await self._go_on(call, model, error.partial)

    async def to_replica(self, call: ClientCall, model: str, member: Member) -> None:
        """Answer by this replica, whatever it says. Raises RefusedError."""
        call.partial = None
        await self._first(call, model, lambda: [member], frozenset())

    async def to_holder(self, call: ClientCall, members: Sequence[Member]) -> None:
        """Answer by the first that has what is asked for. Raises RefusedError."""
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
                self._upstream.ask(member, method, target, None, body) as reply,
            ):
                return reply.status, await reply.whole()
        except (LostError, TimeoutError):
            return None

    def close(self) -> None:
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
            return session_of(call.asked, call.headers.get(_SESSION))
        return None

    async def _first(
        self, call: ClientCall, model: str, ranked: Ranked, refusals: Set[int]
    ) -> None:
        """Answer by the first that accepts; with the last refusal where none does.

        ranked    whom to ask, called when it is: of two requests at once the second one then knows
                  of the first
        refusals  statuses after which the next one is asked
        """
        with self._count_leaver(model):
            refusal = await self._ask_all(call, model, ranked, refusals)
        if refusal is not None:
            await call.answer(*refusal)

    @contextmanager
    def _count_leaver(self, model: str) -> Generator[None]:
        try:
            yield
        except (asyncio.CancelledError, ConnectionResetError):  # the client has gone
            self._meters.count_leaver(model)
            raise

    async def _ask_all(
        self, call: ClientCall, model: str, ranked: Ranked, refusals: Set[int]
    ) -> Refusal | None:
        refusal: Refusal | None = None
        for turn, member in enumerate(ranked()):
            if turn:
                self._meters.count_retry(model)
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
            raise RefusedError(503, "The replicas that were asked do not answer.", code="lost")
        return refusal

    async def _ask(
        self, call: ClientCall, model: str, member: Member, refusals: Set[int]
    ) -> Refusal | None:
        """Pass the request on; what it was refused with. Raises LostError before the first byte."""
        body = jobs.with_replica(call.body, member.id) if call.path in jobs.STARTS else call.body
        headers = call.headers
        if call.partial is not None:
            headers = CIMultiDict([*headers.items(), *call.partial.headers.items()])
        with self.loads.hold(member.id):
            async with self._upstream.ask(member, call.method, call.target, headers, body) as reply:
                if reply.status in refusals:
                    return reply.status, await reply.whole(), reply.headers
                self._meters.count_route(model)
                try:
                    await _pass_on(call, reply)
                except BrokenOffError:
                    self._recovery.note_failure(member)
                    raise
        return None

    async def _go_on(self, call: ClientCall, model: str, partial: PartialAnswer) -> None:
        """Let other replicas end a stream that one has begun; its last event is an error where none
        does in _GO_ON_S, or where one after the other is lost at the same token."""
        loop = asyncio.get_running_loop()
        deadline, fruitless = loop.time() + _GO_ON_S, 0
        key = self._key(call, self._roster.affinities[model])
        await call.say(_PAUSE)
        told = loop.time()
        while loop.time() < deadline and fruitless < _FRUITLESS and not partial.is_lost:
            members = self._roster.members(model)
            ranked = self._homes.order(members, self.loads.all, key, self._recovery.failing)
            for member in ranked[:_TRIES]:
                num_tokens = partial.num_tokens
                try:
                    if await self._ask_on(call, model, member, partial):
                        return
                except LostError:
                    self._recovery.note_failure(member)
                except BrokenOffError:
                    self._recovery.note_failure(member)
                    fruitless = fruitless + 1 if partial.num_tokens == num_tokens else 0
                    deadline = loop.time() + _GO_ON_S
                    break
            if loop.time() - told >= PULSE_S:
                told = loop.time()
                await call.say(_COMMENT)
            await asyncio.sleep(_LOOK_S)
        await call.out.write_eof(_break_off(call, partial.kind))

    async def _ask_on(
        self, call: ClientCall, model: str, member: Member, partial: PartialAnswer
    ) -> bool:
        """Whether this one has ended the answer. Raises LostError where it does not answer, and
        BrokenOffError where it is lost too."""
        written = partial.state()
        headers = call.headers.copy()
        headers.popall("content-encoding", None)
        headers.update(partial.headers)
        headers[WRITTEN] = str(len(written))
        body = written + call.plain_body
        with self.loads.hold(member.id):
            async with self._upstream.ask(member, call.method, call.target, headers, body) as reply:
                if reply.status != 200 or MARKS not in reply.headers:
                    if reply.status == _NOT_READY:
                        self._recovery.note_failure(member)
                    return False
                self._meters.count_continuation(model)
                await _pass_on(call, reply)
        return True


class BrokenOffError(FleetError):
    """A stream broke off that another replica can go on with."""

    def __init__(self, partial: PartialAnswer) -> None:
        super().__init__("The replica that generated this is gone.")
        self.partial = partial


async def _pass_on(call: ClientCall, reply: WorkerReply) -> None:
    """Raises BrokenOffError, and LostError where the client has nothing of the answer yet."""
    if call.is_waiting and reply.status != 200:
        await call.answer(reply.status, await reply.whole(), reply.headers)
        return
    is_marked = reply.headers.popall(MARKS, None) is not None
    await call.begin(reply.status, reply.headers)
    if not reply.is_stream:
        await _pass_whole(call, reply)
        return
    events: WholeEvents | PartialAnswer = WholeEvents(reply.kind)
    if is_marked and call.partial is not None:
        events = call.partial
        events.begin(reply.kind)
    try:
        async for part in reply.parts():
            if whole := events.take(part):
                await call.out.write(whole)
    except LostError:
        if isinstance(events, PartialAnswer) and not events.is_lost:
            raise BrokenOffError(events) from None
        await call.out.write_eof(_break_off(call, reply.kind))
        return
    await call.out.write_eof(events.end())


async def _pass_whole(call: ClientCall, reply: WorkerReply) -> None:
    """An answer that is no stream: blanks, while it is made, then all of it."""
    has_begun = reply.status != 200
    try:
        async for part in reply.parts():
            has_begun = has_begun or not part.isspace()
            await call.out.write(part)
    except LostError:
        if not has_begun and "content-length" not in reply.headers:
            raise
        call.cut()
        return
    await call.out.write_eof()


def _break_off(call: ClientCall, kind: str) -> bytes:
    error = RefusedError(503, "The replica that generated this is gone.", code="replica_lost")
    body = msgspec.json.encode(refusal_reply(call.path, error, call.ids))
    return event_of(call.path, body) if kind == EVENTS else body + b"\n"
