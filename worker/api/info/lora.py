"""GET and POST /lora-adapters (llama-server); adapters that come and go (vLLM)."""

from __future__ import annotations

from pathlib import Path

import msgspec
from litestar import Response, get, post

from worker.api.answer.errors import json_response
from worker.api.intake.adapters import AdapterScale, scales_of
from worker.api.intake.body import HttpRequest, read_json
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.values import name


class AdapterEntry(msgspec.Struct, omit_defaults=True):
    """An adapter; `scale` is what it counts for requests that choose nothing, `path` its file's
    name, `alora_invocation_tokens` where an activated one begins to count."""

    id: int
    name: str
    path: str
    scale: float
    rank: int
    alora_invocation_tokens: tuple[int, ...] = ()


class Success(msgspec.Struct):
    """It is done."""

    success: bool = True


class NewAdapter(msgspec.Struct):
    """What is to be loaded.

    lora_name   a request's `model` that chooses it
    lora_path   a GGUF file in one of the folders of --lora-dir
    """

    lora_name: str
    lora_path: str


class OldAdapter(msgspec.Struct):
    """What is to be unloaded."""

    lora_name: str


@get("/lora-adapters", summary="The adapters (llama-server)")
async def lora_adapters(loaded: Loaded) -> Response[bytes]:
    """All of them, by number."""
    adapters = loaded.adapters
    return json_response(
        [
            AdapterEntry(
                each.id,
                each.name,
                Path(each.config.files[0].path).name,
                adapters.scales.get(each.id, 0.0),
                each.config.rank,
                each.config.invocation,
            )
            for each in adapters.all
        ]
    )


@post("/lora-adapters", status_code=200, summary="What counts where nothing is chosen")
async def scale_adapters(request: HttpRequest, loaded: Loaded) -> Response[bytes]:
    """For requests from now on. Adapters that are not named count no more."""
    scales = scales_of(await read_json(request, list[AdapterScale])) or {}
    loaded.adapters.check(scales)
    loaded.adapters.scales = scales
    return json_response(Success())


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
