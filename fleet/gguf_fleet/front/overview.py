"""What the fleet says of itself: health, models, load and metrics, asked of its workers."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from multidict import CIMultiDict

from gguf_fleet.errors import RefusedError
from gguf_fleet.front.call import ClientCall
from gguf_fleet.front.meters import CONTENT_TYPE, Meters
from gguf_fleet.front.relay import Relay
from gguf_fleet.roster import Roster
from gguf_fleet.routing import Member

_RUNNING = "/api/ps"
_WANTED_S = 2.0  # for Ray to say how many replicas it wants
# Of a worker that knows no such job.
_NOT_THERE = b'"cancelled":false'


class ReplicaView(msgspec.Struct, kw_only=True):
    """A replica, and what its worker says of itself; `well`: it said something.

    requests  that this gateway has sent there and are under way
    limit     requests that it accepts
    """

    id: str
    node: str
    well: bool
    requests: int
    slots: int
    limit: int
    slots_processing: int = 0
    queue_depth: int = 0
    memory_bytes: int = 0


class ModelView(msgspec.Struct):
    """A model of the fleet. `wanted`: replicas that are there or start, as far as Ray says."""

    affinity: str
    replicas: list[ReplicaView]
    wanted: int | None = None


class FleetView(msgspec.Struct):
    """GET /fleet. `status`: ok, or starting while a model has no replica that should have one;
    `pid`: of the gateway."""

    status: str
    pid: int
    models: dict[str, ModelView]


class Overview:
    """Answers that are made of what several workers say."""

    def __init__(self, roster: Roster, relay: Relay, meters: Meters) -> None:
        self._roster = roster
        self._relay = relay
        self._meters = meters

    @property
    def status(self) -> str:
        """ok, or starting while a model has no replica that should have one."""
        ready = all(self._roster.is_served(name) for name in self._roster.affinities)
        return "ok" if ready else "starting"

    async def health(self, call: ClientCall) -> None:
        """200 as soon as each model has a replica."""
        counts = {name: len(self._roster.members(name)) for name in self._roster.affinities}
        value = {"status": self.status, "replicas": counts}
        await call.answer_json(value, 200 if self.status == "ok" else 503)

    async def fleet(self, call: ClientCall) -> None:
        """All replicas and how much they have to do."""
        found = list(self._roster.all())
        said = await self._ask_each((member for _, member in found), "/health")
        wanted = await self._target_counts()
        models = {
            name: ModelView(affinity, [], wanted.get(name))
            for name, affinity in self._roster.affinities.items()
        }
        counts = self._relay.loads.counts
        for (model, member), health in zip(found, said, strict=True):
            models[model].replicas.append(_view(member, counts, health))
        await call.answer_json(FleetView(self.status, os.getpid(), models))

    async def merge_lists(self, call: ClientCall, field: str) -> None:
        """The list `field` of an answer that each model gives, as one list; the rest is the
        first model's. Of a model that sleeps it is the name; others without a replica are left
        out."""
        firsts = [self._roster.members(name)[:1] for name in self._roster.affinities]
        members = (member for members in firsts for member in members)
        said = await self._ask_each(members, call.path)
        answers: list[dict[str, Any]] = [answer for answer in said if answer is not None]
        entries: list[Any] = [entry for answer in answers for entry in answer[field]]
        if call.path != _RUNNING:
            entries += map(_sleeper, filter(self._sleeps, self._roster.affinities))
        await call.answer_json({**(answers[0] if answers else {}), field: entries})

    async def _target_counts(self) -> dict[str, int]:
        try:
            return await asyncio.wait_for(asyncio.to_thread(self._roster.wanted), _WANTED_S)
        except TimeoutError:
            return {}

    def _sleeps(self, model: str) -> bool:
        return self._roster.is_served(model) and not self._roster.members(model)

    async def metrics(self, call: ClientCall) -> None:
        found = list(self._roster.all())
        texts = await asyncio.gather(*(self._ask(member, "/metrics") for _, member in found))
        workers = [
            (model, member.id, text.decode())
            for (model, member), text in zip(found, texts, strict=True)
        ]
        body = self._meters.text(self._roster, dict(self._relay.loads.counts), workers)
        await call.answer(200, body, CIMultiDict({"content-type": CONTENT_TYPE}))

    async def end_anywhere(self, call: ClientCall) -> None:
        """Ask all replicas to end a job or a request; the answer of the one that did, if any."""
        members = [member for _, member in self._roster.all()]
        short = self._relay.short
        asked = (short(member, call.method, call.target, call.body) for member in members)
        said = [answer for answer in await asyncio.gather(*asked) if answer is not None]
        if not said:
            raise RefusedError(503, "No replica answers.", code="lost")
        status, body = min(said, key=lambda answer: (answer[0], _NOT_THERE in answer[1]))
        await call.answer(status, body, CIMultiDict({"content-type": "application/json"}))

    async def _ask_each(self, members: Iterable[Member], path: str) -> list[Any]:
        """What each says at that path, as decoded JSON; None for one that says nothing."""
        bodies = await asyncio.gather(*(self._ask(member, path) for member in members))
        return [msgspec.json.decode(body) if body else None for body in bodies]

    async def _ask(self, member: Member, path: str) -> bytes:
        said = await self._relay.short(member, "GET", path)
        return said[1] if said is not None and said[0] == 200 else b""


def _view(member: Member, counts: Counter[str], health: Any) -> ReplicaView:
    names = ("slots_processing", "queue_depth", "memory_bytes")
    return ReplicaView(
        id=member.id,
        node=member.node,
        well=health is not None,
        requests=counts.get(member.id, 0),
        slots=member.slots,
        limit=member.limit,
        **{name: health[name] for name in names if health is not None},
    )


def _sleeper(model: str) -> dict[str, Any]:
    """An entry of a list of models, OpenAI's or Ollama's, for one that is not loaded."""
    return {
        "id": model, "object": "model", "created": 0, "owned_by": "gguf-worker", "name": model,
        "model": model,
    }  # fmt: skip
