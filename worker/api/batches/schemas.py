"""What clients of files and batches send and read, as OpenAI has it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from worker.batches.line import ENDPOINTS
from worker.database.batches import BatchRecord
from worker.database.files import StoredFile

ANCHOR = "created_at"
# OpenAI's bounds.
SHORTEST_S, LONGEST_S = 3_600, 30 * 86_400
WINDOW = r"[1-9][0-9]{0,2}[hd]"
_MOST_METADATA, _LONGEST_NAME, _LONGEST_TEXT = 16, 64, 512


class ExpiresAfter(msgspec.Struct):
    """seconds: behind the anchor, from an hour to thirty days"""

    anchor: str
    seconds: int


class BatchRequest(msgspec.Struct):
    """POST /v1/batches.

    input_file_id      of an uploaded file, a request in each line
    endpoint           that all its lines have as their url
    completion_window  24h, or another number of hours (h) or days (d); what is not answered by
                       then has expired
    metadata           kept with the batch
    output_expires_after  when its files are deleted; else as --keep-days says
    """

    input_file_id: str
    endpoint: Annotated[str, Meta(extra_json_schema={"enum": list(ENDPOINTS)})]
    completion_window: Annotated[str, Meta(extra_json_schema={"pattern": f"^{WINDOW}$"})] = "24h"
    metadata: dict[str, str] | None = None
    output_expires_after: ExpiresAfter | None = None

    def metadata_problem(self) -> str | None:
        """Which of OpenAI's bounds its metadata breaks."""
        given = self.metadata or {}
        if len(given) > _MOST_METADATA:
            return f"metadata has at most {_MOST_METADATA} pairs."
        if any(len(n) > _LONGEST_NAME or len(t) > _LONGEST_TEXT for n, t in given.items()):
            return (
                f"metadata has names of at most {_LONGEST_NAME} characters and texts of at most "
                f"{_LONGEST_TEXT}."
            )
        return None


class FileView(msgspec.Struct):
    """A file. purpose: batch, or batch_output. Times are seconds since 1970."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    expires_at: int | None = None
    status: str = "processed"
    object: str = "file"


class FilePage(msgspec.Struct):
    """has_more: the last one is not the last of all"""

    data: list[FileView]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


class FileDeleted(msgspec.Struct):
    """It is gone."""

    id: str
    object: str = "file"
    deleted: bool = True


class BatchProblem(msgspec.Struct):
    """line: of the input, from 1; null: it is about the whole file"""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchProblems(msgspec.Struct):
    """Why no line was asked."""

    data: list[BatchProblem]
    object: str = "list"


class RequestCounts(msgspec.Struct):
    """Lines; those that were answered are kept already."""

    total: int
    completed: int
    failed: int


class BatchView(msgspec.Struct):
    """A batch. Times are seconds since 1970.

    status  validating, in_progress, completed, failed, expired, cancelling or cancelled
    paused  why its lines wait at the moment, such as for a full disk
    """

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: str
    created_at: int
    request_counts: RequestCounts
    errors: BatchProblems | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    expires_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    metadata: dict[str, str] | None = None
    paused: str | None = None
    object: str = "batch"


class BatchPage(msgspec.Struct):
    """The newest first."""

    data: list[BatchView]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


_SAME = (
    "id endpoint input_file_id completion_window status created_at output_file_id error_file_id "
    "in_progress_at expires_at finalizing_at completed_at failed_at expired_at cancelling_at "
    "cancelled_at metadata"
).split()


def batch_view(record: BatchRecord, paused: str) -> BatchView:
    problems = [
        BatchProblem(each.code, each.message, each.line or None, each.param)
        for each in record.errors
    ]
    return BatchView(
        **{name: getattr(record, name) for name in _SAME},
        request_counts=RequestCounts(record.total, record.completed, record.failed),
        errors=BatchProblems(problems) if problems else None,
        paused=None if record.is_over else paused or None,
    )


def file_view(file: StoredFile) -> FileView:
    return FileView(file.id, file.bytes, file.created_at, file.name, file.purpose, file.expires_at)
