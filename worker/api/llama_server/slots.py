"""POST /slots/{id}?action=save, restore, erase: what a request said that named a slot."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Response, post

from worker.api.answer.errors import json_response
from worker.api.intake.body import HttpRequest, read_json
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded

_DIGITS = 9
ACTIONS = ("save", "restore", "erase")


class SlotFileName(msgspec.Struct):
    """POST /slots/{id}.

    filename  below --slot-save-path; needed but to erase
    """

    filename: str | None = None


class SlotReply(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What was done: tokens, bytes of the file, milliseconds."""

    id_slot: int
    filename: str | None = None
    n_saved: int | None = None
    n_written: int | None = None
    n_restored: int | None = None
    n_read: int | None = None
    n_erased: int | None = None
    timings: dict[str, float] = {}


@post("/slots/{slot_id:str}", status_code=200, summary="Save, restore or erase (llama-server)")
async def slot_action(
    request: HttpRequest, slot_id: str, loaded: Loaded, action: str = ""
) -> Response[bytes]:
    """A file holds one sequence, and is restored by workers with the same model and settings."""
    number = int(slot_id) if slot_id.isdecimal() and len(slot_id) < _DIGITS else -1
    loaded.slots.check(number, "id")
    if action not in ACTIONS:
        raise RequestError(f"action must be one of {', '.join(ACTIONS)}.", param="action")
    if action == "erase":
        return json_response(SlotReply(id_slot=number, n_erased=await loaded.slots.erase(number)))
    name = (await read_json(request, SlotFileName)).filename
    done: dict[str, Any] = {"id_slot": number, "filename": name}
    if action == "save":
        moved = await loaded.slots.save(number, name)
        done |= {"n_saved": moved.num_tokens, "n_written": moved.num_bytes}
    else:
        moved = await loaded.slots.restore(number, name)
        done |= {"n_restored": moved.num_tokens, "n_read": moved.num_bytes}
    return json_response(SlotReply(**done, timings={f"{action}_ms": moved.ms}))
