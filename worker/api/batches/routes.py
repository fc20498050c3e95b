"""/v1/files and /v1/batches."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from litestar import Response, delete, get, post
from litestar.exceptions import InternalServerException
from litestar.response import Stream

from worker.api.answer.errors import json_response
from worker.api.batches.runner import BatchRunner, unavailable
from worker.api.batches.schemas import (
    ANCHOR,
    LONGEST_S,
    SHORTEST_S,
    WINDOW,
    BatchPage,
    BatchRequest,
    BatchView,
    ExpiresAfter,
    FileDeleted,
    FilePage,
    FileView,
    batch_view,
    file_view,
)
from worker.api.batches.upload import Upload
from worker.api.described import JSON, LINES, Api, Described
from worker.api.intake.body import HttpRequest, read_json
from worker.api.intake.origins import Asker
from worker.batches.line import ENDPOINTS
from worker.database.batches import BatchRecord, StoredBatches
from worker.database.files import StoredFile, StoredFiles, new_id
from worker.errors import ConflictError, LeftError, NotFoundError, RequestError
from worker.http import paths
from worker.lifecycle.worker import Worker
from worker.requests.record import current_owner
from worker.settings import Settings

_PAGE, _FILES_PAGE = 100, 10_000
_HOUR_S, _DAY_S = 3_600, 86_400


class BatchDesk:
    """All that files and batches need."""

    def __init__(self, files: StoredFiles, batches: StoredBatches, runner: BatchRunner) -> None:
        self.files, self.batches, self.runner = files, batches, runner

    def view(self, record: BatchRecord) -> BatchView:
        return batch_view(record, self.runner.paused)


def _desk_of(desk: BatchDesk | None) -> BatchDesk:
    if desk is None:
        raise unavailable()
    return desk


@post("/v1/files", status_code=200, summary="Upload a file", request_max_body_size=None)
async def upload_file(
    request: HttpRequest, worker: Worker, desk: BatchDesk | None
) -> Response[bytes]:
    """Of requests, one in each line."""
    files, settings = _desk_of(desk).files, worker.settings
    owner = current_owner()
    if await files.count(owner) >= settings.batch_files:
        raise RequestError(
            f"There are {settings.batch_files} files, and no more are kept.",
            hint="Delete some; --batch-files sets how many.",
        )
    file_id = new_id("file-")
    upload = Upload(files.place_of(file_id), settings.batch_file << 20)
    try:
        content_type = request.headers.get("content-type", "")
        await upload.read(content_type, _chunks(request, settings.receive_timeout))
        if upload.name is None:
            raise RequestError("file is missing.", param="file")
        if upload.fields.get("purpose") != "batch":
            raise RequestError("purpose must be batch.", param="purpose")
        now = int(time.time())
        file = StoredFile(
            id=file_id,
            owner=owner,
            purpose="batch",
            name=upload.name,
            bytes=upload.num_bytes,
            created_at=now,
            expires_at=now + _upload_seconds(upload.fields, settings),
        )
        await files.add(file)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            upload.place.unlink()
        raise
    return json_response(file_view(file))


async def _chunks(request: HttpRequest, seconds: float) -> AsyncIterator[bytes]:
    """The body as it comes; none of it may take longer."""
    chunks = aiter(request.stream())
    try:
        while True:
            async with asyncio.timeout(seconds):
                yield await anext(chunks)
    except StopAsyncIteration:
        return
    except TimeoutError:
        raise RequestError(f"Nothing of the file arrived in {seconds:g} s.") from None
    except InternalServerException:  # what Litestar calls it
        raise LeftError("The client left before its file was whole.") from None


def _upload_seconds(fields: dict[str, str], settings: Settings) -> int:
    """For which a file is kept, as its form says."""
    anchor, seconds = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return settings.keep_days * _DAY_S
    number = int(seconds) if seconds and seconds.isdecimal() and len(seconds) < 10 else 0
    return _seconds_of(ExpiresAfter(anchor or "", number), "expires_after", settings)


def _seconds_of(given: ExpiresAfter | None, param: str, settings: Settings) -> int:
    most = settings.keep_days * _DAY_S
    if given is None:
        return most
    if given.anchor != ANCHOR:
        raise RequestError(f"{param}.anchor must be {ANCHOR}.", param=param)
    if not SHORTEST_S <= given.seconds <= LONGEST_S:
        raise RequestError(
            f"{param}.seconds must be from {SHORTEST_S} to {LONGEST_S}.", param=param
        )
    return min(given.seconds, most)


@get("/v1/files", summary="Uploaded files, and those of batches")
async def list_files(
    desk: BatchDesk | None,
    purpose: str = "",
    after: str = "",
    limit: str = "10000",
    order: str = "desc",
) -> Response[bytes]:
    """Those of the key."""
    files = _desk_of(desk).files
    if order not in ("asc", "desc"):
        raise RequestError("order must be asc or desc.", param="order")
    most = _limit(limit, _FILES_PAGE)
    found = await files.list(
        current_owner(),
        purpose=purpose or None,
        after=after or None,
        limit=most + 1,
        newest=order == "desc",
    )
    views = list(map(file_view, found[:most]))
    return json_response(FilePage(views, *_ends(views), has_more=len(found) > most))


@get("/v1/files/{file_id:str}", summary="A file")
async def get_file(file_id: str, desk: BatchDesk | None) -> Response[bytes]:
    """What is known of it."""
    return json_response(file_view(await _file(file_id, _desk_of(desk))))


@get("/v1/files/{file_id:str}/content", summary="A file's content")
async def get_content(file_id: str, desk: BatchDesk | None) -> Stream:
    """As it was uploaded, or the answers of a batch in the order of its lines."""
    found = _desk_of(desk)
    file = await _file(file_id, found)
    if not await found.files.holds(file):
        raise NotFoundError("The file was removed from --state-dir.", param="file_id")
    return Stream(
        found.files.content(file),
        media_type="application/x-ndjson",
        headers={"content-length": str(file.bytes)},
    )


@delete("/v1/files/{file_id:str}", status_code=200, summary="Delete a file")
async def delete_file(file_id: str, desk: BatchDesk | None) -> Response[bytes]:
    """Not one that a batch still reads."""
    found = _desk_of(desk)
    file = await _file(file_id, found)
    if (user := await found.batches.uses(file.id)) is not None:
        raise ConflictError(f"{user} still reads this file.", hint="Cancel it, or wait.")
    await found.files.delete(file)
    return json_response(FileDeleted(file.id))


async def _file(file_id: str, desk: BatchDesk) -> StoredFile:
    file = await desk.files.get(current_owner(), file_id)
    if file is None:
        raise NotFoundError("There is no such file.", param="file_id")
    return file


@post("/v1/batches", status_code=200, summary="Create a batch")
async def create_batch(
    request: HttpRequest, worker: Worker, desk: BatchDesk | None
) -> Response[bytes]:
    """Its lines are answered in what other requests leave free."""
    body, settings = await read_json(request, BatchRequest), worker.settings
    found = _desk_of(desk)
    if body.endpoint not in ENDPOINTS:
        raise RequestError(f"endpoint must be one of {', '.join(ENDPOINTS)}.", param="endpoint")
    if body.endpoint in paths.WRITING or body.endpoint in paths.DECIDING:
        worker.loaded.check_writes()
    if re.fullmatch(WINDOW, body.completion_window) is None:
        raise RequestError(
            "completion_window must be a number of hours or days, such as 24h.",
            param="completion_window",
        )
    if (problem := body.metadata_problem()) is not None:
        raise RequestError(problem, param="metadata")
    kept = _seconds_of(body.output_expires_after, "output_expires_after", settings)
    owner = current_owner()
    if await found.batches.input_of(owner, body.input_file_id) is None:
        raise NotFoundError("There is no such file.", param="input_file_id")
    now, unit = int(time.time()), body.completion_window[-1]
    seconds = int(body.completion_window[:-1]) * (_HOUR_S if unit == "h" else _DAY_S)
    record = BatchRecord(
        id=new_id("batch_"),
        owner=owner,
        endpoint=body.endpoint,
        input_file_id=body.input_file_id,
        completion_window=body.completion_window,
        status="validating",
        created_at=now,
        expires_at=now + seconds,
        output_seconds=kept,
        metadata=body.metadata,
    )
    await found.batches.add(record)
    found.runner.begin(record)
    return json_response(found.view(record))


@get("/v1/batches", summary="Batches")
async def list_batches(
    desk: BatchDesk | None,
    after: str = "",
    limit: str = "20",
) -> Response[bytes]:
    """Those of the key, the newest first."""
    found, most = _desk_of(desk), _limit(limit, _PAGE)
    owner = current_owner()
    records = await found.batches.list(owner, after=after or None, limit=most + 1)
    views = [found.view(record) for record in records[:most]]
    return json_response(BatchPage(views, *_ends(views), has_more=len(records) > most))


@get("/v1/batches/{batch_id:str}", summary="A batch")
async def get_batch(batch_id: str, desk: BatchDesk | None) -> Response[bytes]:
    """How far it is."""
    found = _desk_of(desk)
    return json_response(found.view(await _batch(batch_id, found)))


@post("/v1/batches/{batch_id:str}/cancel", status_code=200, summary="Cancel a batch")
async def cancel_batch(batch_id: str, desk: BatchDesk | None) -> Response[bytes]:
    """Lines that were answered stay."""
    found = _desk_of(desk)
    record = await _batch(batch_id, found)
    if not record.is_over:

        def cancel(record: BatchRecord) -> None:
            if not record.is_over and record.status != "cancelling":
                record.status, record.cancelling_at = "cancelling", int(time.time())

        record = await found.batches.change(record.id, cancel) or record
        found.runner.cancel(record.id)
    return json_response(found.view(record))


async def _batch(batch_id: str, desk: BatchDesk) -> BatchRecord:
    record = await desk.batches.get(current_owner(), batch_id)
    if record is None:
        raise NotFoundError("There is no such batch.", param="batch_id")
    return record


def _limit(text: str, most: int) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= most:
        raise RequestError(f"limit must be from 1 to {most}.", param="limit")
    return int(text[:9])


def _ends(views: Sequence[FileView | BatchView]) -> tuple[str | None, str | None]:
    return (views[0].id, views[-1].id) if views else (None, None)


_FILE = {"file_id": "Of an upload's answer, or of a batch."}
_BATCH = {"batch_id": "Of the answer that created it."}
_AFTER = "The last id of the page before."

API = Api(
    name="Batches",
    text="Many requests in a file, answered in what others leave free. They need `--state-dir`.",
    routes=(
        Described(
            handler=upload_file,
            asker=Asker.NAMED,
            gives={JSON: FileView},
            notes="The body is `multipart/form-data` with `purpose=batch`, then `file`; "
            "`expires_after[anchor]` and `expires_after[seconds]` may stand before it.",
        ),
        Described(
            handler=list_files,
            gives={JSON: FilePage},
            queries={
                "purpose": "`batch` or `batch_output`.",
                "after": _AFTER,
                "limit": "Files at most, from 1 to 10,000.",
                "order": "`asc`, or the newest first.",
            },
        ),
        Described(handler=get_file, gives={JSON: FileView}, params=_FILE),
        Described(handler=get_content, gives={LINES: dict[str, Any]}, params=_FILE),
        Described(handler=delete_file, asker=Asker.NAMED, gives={JSON: FileDeleted}, params=_FILE),
        Described(
            handler=create_batch,
            asker=Asker.NAMED,
            wakes=False,
            takes=BatchRequest,
            needs=("input_file_id", "endpoint"),
            gives={JSON: BatchView},
            examples={
                "night": {
                    "input_file_id": "file-0123456789abcdef01234567",
                    "endpoint": "/v1/chat/completions",
                    "completion_window": "24h",
                }
            },
        ),
        Described(
            handler=list_batches,
            gives={JSON: BatchPage},
            queries={"after": _AFTER, "limit": "Batches at most, from 1 to 100."},
        ),
        Described(handler=get_batch, gives={JSON: BatchView}, params=_BATCH),
        Described(handler=cancel_batch, asker=Asker.NAMED, gives={JSON: BatchView}, params=_BATCH),
    ),
)
