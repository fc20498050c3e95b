"""The fleet's endpoint: what finds each request its replica.

body's `model`, path's model        a replica of that model, by affinity
/models/NAME/...                    a replica of that model, any path of the worker
/replicas/ID/...                    that replica
a job's stream, /cancel             the replica that has the job
/v1/streams/ID, /v1/responses/ID    the replica that has it
/health /fleet /metrics /v1/models  what the fleet says of itself
"""

from __future__ import annotations

from aiohttp import web
from multidict import CIMultiDict

from gguf_fleet.errors import RefusedError
from gguf_fleet.front import jobs
from gguf_fleet.front.call import BODY_BYTES, ClientCall
from gguf_fleet.front.meters import Meters
from gguf_fleet.front.overview import Overview
from gguf_fleet.front.relay import Relay
from gguf_fleet.front.upstream import Upstream
from gguf_fleet.keys import Auth, KeyFile
from gguf_fleet.roster import Roster

# The worker's paths that mean something else here: open to everybody, and closed to all.
_HEALTH = frozenset({
    "/", "/health", "/v1/health", "/livez", "/readyz", "/v2/health/live", "/v2/health/ready",
})  # fmt: skip
_SHUTDOWN = ("/shutdown", "/v1/shutdown", "/v1/admin/shutdown")
_ONE_REQUEST = "/v1/requests/"
_MODELS = "/v1/models/"
# What one replica has, and none says which: it is the one that does not answer 404.
_HELD = ("/v1/streams/", "/v1/responses/resp_", "/responses/resp_")
# Kept by one replica.
_STATEFUL = ("/v1/files", "/v1/batches")
# The same whatever the model is.
_COMMON = frozenset({"/openapi.json", "/version", "/api/version"})
_ENDING = "/cancel"
# In which workers are told whose key a request has; a client's own goes no further.
_ACCOUNT = "x-account"
# Where KubeRay asks whether a pod serves; as Ray's own proxy answers.
_SERVES = "/-/healthz"


class Gateway:
    """Answers each request.

    is_leaving  each answer is the last one of its connection
    """

    def __init__(self, roster: Roster, keys: KeyFile | None, *, shares: bool = False) -> None:
        """keys: one of them clients must send; None: everybody may ask

        shares: other gateways ask the same replicas
        """
        self._shares = shares
        self._roster = roster
        self._auth = Auth(keys)
        self._meters = Meters()
        self._parts: tuple[Upstream, Relay, Overview] | None = None
        self.is_leaving = False

    def application(self) -> web.Application:
        """For a server; aiohttp wants one that is new for each."""
        made = web.Application(client_max_size=BODY_BYTES)
        made.router.add_route("*", "/{path:.*}", self._answer)
        made.on_response_prepare.append(_say_no_name)
        return made

    async def close(self) -> None:
        """Close what is open to workers; a later request opens it again."""
        if self._parts is not None:
            upstream, relay, _ = self._parts
            relay.close()
            await upstream.close()
            self._parts = None

    @property
    def _open(self) -> tuple[Upstream, Relay, Overview]:
        """Made on the event loop that serves, with the first request."""
        if self._parts is None:
            upstream = Upstream()
            relay = Relay(self._roster, upstream, self._meters, shares=self._shares)
            self._parts = upstream, relay, Overview(self._roster, relay, self._meters)
        return self._parts

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        call = ClientCall(request, is_last=self.is_leaving)
        model = ""
        try:
            self._check(call)
            if not await self._say_itself(call):
                await call.read()
                model = await self._pass_on(call)
        except RefusedError as error:
            await call.refuse(error)
        finally:
            if model and call.status is not None:
                self._meters.count_answer(model, call.status)
        return call.out

    def _check(self, call: ClientCall) -> None:
        """Raise RefusedError without the key, and for what nobody may. Workers believe what a call
        says of its account from now on."""
        call.headers.popall(_ACCOUNT, None)
        if call.path == _SERVES or call.path in _HEALTH:
            return
        account = self._auth.check(call.headers.get("x-api-key"), call.headers.get("authorization"))
        if account:
            call.headers[_ACCOUNT] = account
        if call.path.endswith(_SHUTDOWN):
            raise RefusedError(403, "A fleet is stopped where it was started.")

    async def _say_itself(self, call: ClientCall) -> bool:
        """Answer what needs no body and no model; whether it was that."""
        if call.method not in ("GET", "HEAD"):
            return False
        _, _, overview = self._open
        if call.path in _HEALTH:
            await overview.health(call)
        elif call.path == _SERVES:
            await call.answer(200, b"success", CIMultiDict({"content-type": "text/plain"}))
        elif call.path == "/fleet":
            await overview.fleet(call)
        elif call.path == "/metrics":
            await overview.metrics(call)
        elif call.path == "/v1/models":
            await overview.merge_lists(call, "data")
        elif call.path in ("/api/tags", "/api/ps"):
            await overview.merge_lists(call, "models")
        else:
            return False
        return True

    async def _pass_on(self, call: ClientCall) -> str:
        """Let a replica answer; the model that was chosen. Raises RefusedError."""
        _, relay, _ = self._open
        kind, _, rest = call.path[1:].partition("/")
        name = rest.partition("/")[0]
        if kind == "replicas":
            found = self._roster.find(name)
            if found is None:
                raise RefusedError(404, f"There is no replica {name[:64]!r}.")
            call.strip(2)
            await relay.to_replica(call, *found)
            return found[0]
        if kind == "models":
            model = self._check_name(name)
            call.strip(2)
        elif call.path in _COMMON:
            model = next(iter(self._roster.affinities))
        else:
            model = ""
        if call.path.startswith(_STATEFUL):
            raise RefusedError(
                501,
                "Files and batches are those of one replica: ask /replicas/ID/v1/batches, with ID "
                "from /fleet.",
            )
        if (job := jobs.read_by(call.path)) is not None:
            return await self._read_job(call, job)
        if call.path == jobs.CANCEL or (
            call.path.startswith(_ONE_REQUEST) and call.path.endswith(_ENDING)
        ):
            return await self._end(call)
        if call.path.startswith(_HELD):
            members = self._roster.members(model) if model else None
            everyone = [member for _, member in self._roster.all()]
            await relay.to_holder(call, everyone if members is None else members)
            return model
        model = model or self._model_of(call)
        await relay.to_model(call, model)
        return model

    def _model_of(self, call: ClientCall) -> str:
        """The model that the body or the path names. Raises RefusedError."""
        if call.path.startswith(_MODELS):
            return self._check_name(call.path.removeprefix(_MODELS))
        if isinstance(call.asked.model, str):
            return self._check_name(call.asked.model)
        names = list(self._roster.affinities)
        if len(names) == 1:
            return names[0]
        raise RefusedError(
            400, "model is missing.", param="model",
            hint=f"This fleet serves {', '.join(names)}; or ask for /models/{names[0]}/...",
        )  # fmt: skip

    def _check_name(self, name: str) -> str:
        if name in self._roster.affinities:
            return name
        raise RefusedError(
            404,
            f"The model {name[:200]!r} is not served here.",
            hint=f"This fleet serves {', '.join(self._roster.affinities)}.",
            param="model",
            code="model_not_found",
        )

    async def _read_job(self, call: ClientCall, job: str) -> str:
        """The job's events, from the replica that has it."""
        _, relay, _ = self._open
        found = self._roster.find(jobs.replica_of(job))
        if found is not None:
            await relay.to_replica(call, *found)
            return found[0]
        await relay.to_holder(call, [member for _, member in self._roster.all()])
        return ""

    async def _end(self, call: ClientCall) -> str:
        """Let the replica end the job or the request; all are asked where none is told."""
        _, relay, overview = self._open
        job = call.asked.job_id
        found = self._roster.find(jobs.replica_of(job)) if isinstance(job, str) else None
        if found is not None:
            await relay.to_replica(call, *found)
            return found[0]
        await overview.end_anywhere(call)
        return ""


async def _say_no_name(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.pop("server", None)
