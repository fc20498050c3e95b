"""GET and POST /lora-adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from litestar import Request as HttpRequest
from litestar import Response, get, post

from worker.api.common.adapters import AdapterScale, scales_of
from worker.api.common.body import read_json
from worker.api.common.errors import json_response
from worker.lifecycle.loaded import Loaded


class AdapterEntry(msgspec.Struct):
    """An adapter; `scale` is what it counts for requests that choose nothing, `path` its file's
    name."""

    id: int
    name: str
    path: str
    scale: float
    rank: int


class Success(msgspec.Struct):
    """It is done."""

    success: bool = True


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
            )
            for each in adapters.all
        ]
    )


@post("/lora-adapters", status_code=200, summary="What counts where nothing is chosen")
async def scale_adapters(request: HttpRequest[Any, Any, Any], loaded: Loaded) -> Response[bytes]:
    """For requests from now on. Adapters that are not named count no more."""
    scales = scales_of(await read_json(request, list[AdapterScale])) or {}
    loaded.adapters.check(scales)
    loaded.adapters.scales = scales
    return json_response(Success())
