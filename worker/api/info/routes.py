"""The routes about the worker itself, with what is said of each."""

from __future__ import annotations

import time

from litestar import Response, get, post
from litestar.response import Stream

from worker import __version__
from worker.api.answer.errors import event_stream, json_response
from worker.api.described import EVENTS, HTML, JSON, TEXT, Api, Described
from worker.api.info import reference
from worker.api.info.about import Health, Info, ModelReady, Version, health_of, info_of
from worker.api.info.lora import NewAdapter, OldAdapter
from worker.api.info.progress import LoadProgress, NotLoaded, Ready, events_of
from worker.api.info.readings import Window
from worker.api.info.sleep import ShutdownReply, Sleeping, sleeper_of
from worker.api.intake.adapters import MODEL_ID, adapter_at
from worker.api.intake.body import HttpRequest, read_json
from worker.api.intake.facts import ModelFacts
from worker.api.intake.origins import Asker
from worker.errors import ForbiddenError, NotFoundError, RequestError
from worker.http import paths
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.requests.journal import Journal
from worker.requests.record import current
from worker.requests.views import UsageReply
from worker.values import name


@get(paths.HEALTH, summary="Is the worker well")
async def health(worker: Worker, loaded: Loaded) -> Response[bytes]:
    """200 when it is, 503 when its engine hangs."""
    answer = health_of(worker, loaded)
    return json_response(answer, 200 if answer.status == "ok" else 503)


@get("/info", summary="The worker as its manager sees it")
async def info(worker: Worker, loaded: Loaded) -> Response[bytes]:
    """What it is, what it may hold, how it is now."""
    return json_response(info_of(worker, loaded))


@get("/openapi.json", summary="This description (OpenAPI 3.1)")
async def openapi_json(description: bytes) -> Response[bytes]:
    """Of all paths."""
    return Response(description, media_type="application/json")


@get("/docs", summary="The reference of the API, for people")
async def docs() -> Response[bytes]:
    """Swagger UI over /openapi.json."""
    return _docs_file("")


@get([f"/docs/{name}" for name in reference.FILES], summary="A file of that page")
async def docs_file(request: HttpRequest) -> Response[bytes]:
    """Its style and its scripts."""
    return _docs_file(request.scope["path"].rpartition("/")[2])


def _docs_file(name: str) -> Response[bytes]:
    body, media_type = reference.file(name)
    return Response(body, media_type=media_type, headers=reference.HEADERS)


@get("/version", summary="The worker's version")
async def version() -> Response[bytes]:
    """vLLM's shape."""
    return json_response(Version(__version__))


# The id may have slashes, and what is behind such a parameter is a part of it.
@get("/v2/models/{model_id:path}", summary="Whether the model is ready")
async def model_ready(model_id: str, facts: ModelFacts) -> Response[bytes]:
    """GET /v2/models/{id}/ready."""
    path, _, wanted = str(model_id).rpartition("/")
    if wanted != "ready":
        raise NotFoundError("There is only /v2/models/{id}/ready.")
    adapter = adapter_at(path, facts.adapters)
    return json_response(ModelReady(facts.model_id if adapter is None else adapter.name))


# llama-server's way to tell a new process from counters that began anew.
_STARTED = {"Process-Start-Time-Unix": str(int(time.time()))}


@get(paths.METRICS, summary="Prometheus metrics")
async def metrics(
    request: HttpRequest, worker: Worker, loaded: Loaded, journal: Journal, window: Window
) -> Response[bytes]:
    """Counters, gauges and histograms as text, or as OpenMetrics for who accepts that."""
    from worker.api.info.collector import metrics_text  # prometheus_client takes 15 ms

    accept = request.headers.get("accept", "")
    text, media_type = metrics_text(worker, loaded, journal.outcomes, window, accept)
    return Response(text, media_type=media_type, headers=_STARTED)


@get("/v1/usage", summary="Usage by key")
async def usage(worker: Worker, journal: Journal) -> Response[bytes]:
    """With a key that is an admin's; without any, from this machine only."""
    record = current()
    if worker.settings.api_keys and not (record is not None and record.account.is_admin):
        raise ForbiddenError(
            "Only an admin's key may read what others used.",
            hint="Write admin behind the key in the file of --api-key-file.",
        )
    return json_response(UsageReply(journal.outcomes.usage))


# Levels 1 and 2 of vLLM's differ in where it keeps weights; here they are in their file.
@post("/sleep", status_code=200, summary="Give the model's memory back")
async def sleep(worker: Worker, mode: str = "wait") -> Response[bytes]:
    """Once what runs has ended. With the key; without one, from this machine only."""
    if mode != "wait":
        raise RequestError("mode must be wait: what runs ends first.", param="mode")
    await sleeper_of(worker).sleep()
    return json_response(Sleeping(True))


@post("/wake_up", status_code=200, summary="Load the model again")
async def wake_up(worker: Worker) -> Response[bytes]:
    """As the next request would."""
    await sleeper_of(worker).wake()
    return json_response(Sleeping(False))


@get("/is_sleeping", summary="Whether the model sleeps")
async def is_sleeping(worker: Worker) -> Response[bytes]:
    """vLLM's routers ask before they send work."""
    return json_response(Sleeping(worker.is_sleeping))


@post(paths.SHUTDOWN, status_code=202, summary="Drain and leave")
async def shutdown(worker: Worker) -> Response[bytes]:
    """With the key; without one, from this machine only."""
    worker.request_stop("request")
    return json_response(ShutdownReply("stopping", worker.settings.drain_timeout), 202)


@get(paths.PROGRESS, summary="How far the model is loaded")
async def progress(worker: Worker) -> Stream:
    """The load as events, then how it ended."""
    return event_stream(events_of(worker))


@post("/v1/load_lora_adapter", status_code=200, summary="Serve one more adapter (vLLM)")
async def load_adapter_file(request: HttpRequest, loaded: Loaded) -> str:
    """Once this is answered, requests may name it."""
    new = await read_json(request, NewAdapter)
    try:
        name(new.lora_name)
    except ValueError as error:
        raise RequestError(f"lora_name {error}.", param="lora_name") from None
    await loaded.adapter_loader.load(new.lora_name, new.lora_path)
    return f"Success: LoRA adapter '{new.lora_name}' added successfully."


@post("/v1/unload_lora_adapter", status_code=200, summary="Serve an adapter no longer (vLLM)")
async def unload_adapter(request: HttpRequest, loaded: Loaded) -> str:
    """Requests that were accepted keep it until they end."""
    old = await read_json(request, OldAdapter)
    await loaded.adapter_loader.unload(old.lora_name)
    return f"Success: LoRA adapter '{old.lora_name}' removed successfully."


API = Api(
    name="Worker",
    text="Properties and state of the worker, for managers, routers, monitors and people.",
    routes=(
        Described(
            handler=health,
            gives={JSON: Health},
            also={503: Health},
            notes="Open to everybody. 503 with the same fields where the engine hangs. At `/` a "
            "browser gets the web UI.",
        ),
        Described(
            handler=metrics,
            asker=Asker.NAMED,
            gives={TEXT: str},
            notes="Some gauges tell what was since the scrape before.",
        ),
        Described(
            handler=progress,
            gives={EVENTS: (LoadProgress, Ready, NotLoaded)},
            notes="Events while the model loads, then `ready` or `error`.",
        ),
        Described(
            handler=shutdown,
            asker=Asker.LOCAL,
            gives={JSON: ShutdownReply},
        ),
        Described(handler=info, gives={JSON: Info}),
        Described(handler=openapi_json, gives={JSON: dict}),
        Described(handler=docs, gives={HTML: str}),
        Described(handler=docs_file, gives={"text/css": str, "text/javascript": str}),
        Described(handler=version, gives={JSON: Version}),
        Described(
            handler=sleep,
            asker=Asker.LOCAL,
            gives={JSON: Sleeping},
            queries={"mode": "wait: running requests end first."},
            notes="Requests that arrive meanwhile wait, and wake it again.",
        ),
        Described(handler=wake_up, asker=Asker.LOCAL, gives={JSON: Sleeping}),
        Described(
            handler=usage,
            asker=Asker.LOCAL,
            gives={JSON: UsageReply},
            notes="By the names of keys, since the start. 403 without an admin's key.",
        ),
        Described(handler=is_sleeping, gives={JSON: Sleeping}),
        Described(
            handler=model_ready,
            gives={JSON: ModelReady},
            path="/v2/models/{model_id}/ready",
            params={"model_id": MODEL_ID},
        ),
        Described(
            handler=load_adapter_file,
            asker=Asker.OWN,
            takes=NewAdapter,
            gives={TEXT: str},
            examples={"named": {"lora_name": "sql", "lora_path": "sql.gguf"}},
            notes="Without --lora-dir 404. 400 with a code that says what is wrong with the file; "
            "`no_room`: it is too large.",
        ),
        Described(
            handler=unload_adapter,
            asker=Asker.OWN,
            takes=OldAdapter,
            gives={TEXT: str},
            examples={"named": {"lora_name": "tales"}},
            notes="Without --lora-dir 404.",
        ),
    ),
)
