"""Jobs of the original worker's API: accepted by one request, read by another, cancelled by id.

    preparing -> waiting -> read -> forgotten
        |           |         |
        +-----------+---------+---> ended early (cancelled, too slow), which its reader is told

A job generates from the moment it is accepted, read or not. One that nobody reads is aborted and
forgotten after UNREAD_S seconds, and at most UNREAD of them are kept: beyond that new ones
are refused, because nothing that was accepted may fail for a neighbour's sake.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid

import msgspec

from worker.api.intake.generation import Generation
from worker.api.jobs.schemas import JOB_ID
from worker.engine.stream import Stream
from worker.errors import (
    CancelledError,
    ConflictError,
    InferenceTimeoutError,
    NotFoundError,
    QueueFullError,
    RequestError,
    WorkerError,
)
from worker.limits import UNREAD
from worker.requests.trace import CacheTrace

UNREAD_S = 60.0
_ID = re.compile(JOB_ID, re.ASCII)


class Job:
    """One generation under the name that its client knows. `Jobs` is the only writer.

    created     seconds since the epoch
    num_prompt  tokens of its prompt, once it is prepared
    model       the name that its answer gives the model, then
    generation  what it asks for, then
    stream      what the engine says; None while the request is prepared
    error       why it was ended early
    """

    def __init__(self, job_id: str, *, is_read: bool) -> None:
        self.id = job_id
        self.is_read = is_read
        self.created = time.time()
        self.num_prompt = 0
        self.model = ""
        self.generation: Generation | None = None
        self.stream: Stream | None = None
        self.error: WorkerError | None = None
        self.timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def cache_trace(self) -> CacheTrace | msgspec.UnsetType:
        """Of its prompt, where its client asked for it, once it has ended."""
        return msgspec.UNSET if self.generation is None else self.generation.cache_trace

    def end(self, error: WorkerError) -> None:
        """Stop generating; after what was generated so far its reader gets the first `error`."""
        if self.error is None:
            self.error = error
            self.tell_error()

    def tell_error(self) -> None:
        """Put the error behind what the stream holds, where there is a stream already."""
        if self.stream is not None and self.error is not None:
            self.stream.fail(self.error)


class Jobs:
    """All jobs by id; for the event loop's thread."""

    def __init__(
        self, *, timeout: float, unread: float = UNREAD_S, max_unread: int = UNREAD.most
    ) -> None:
        """timeout: seconds that a job may take from its acceptance to its end"""
        self._timeout = timeout
        self._unread = unread
        self._max_unread = max_unread
        self._jobs: dict[str, Job] = {}

    def __len__(self) -> int:
        """Jobs that are not forgotten."""
        return len(self._jobs)

    def open(self, job_id: str | None, *, read: bool) -> Job:
        """A new job in preparation, cancellable from now on; `read`: its request is its reader.

        Raises RequestError for an unusable id, ConflictError for one that is taken, QueueFullError
        when too many jobs wait for their readers.
        """
        job_id = f"job-{uuid.uuid4().hex}" if job_id is None else job_id
        if not _ID.fullmatch(job_id):
            raise RequestError(
                "job_id must be 1 to 128 letters, digits or any of ._:- .", param="job_id"
            )
        if job_id in self._jobs:
            raise ConflictError(f"The job {job_id} exists.", param="job_id", code="JOB_EXISTS")
        if not read and sum(not job.is_read for job in self._jobs.values()) >= self._max_unread:
            raise QueueFullError(f"{self._max_unread} jobs wait to be read already.")
        job = self._jobs[job_id] = Job(job_id, is_read=read)
        return job

    def run(self, job: Job, generation: Generation, stream: Stream) -> Stream:
        """Follow what the engine makes of a job."""
        job.num_prompt = generation.num_prompt_tokens
        job.model, job.generation = generation.model, generation
        job.stream = stream
        if job.error is not None:  # cancelled while it was prepared
            job.tell_error()
        loop = asyncio.get_running_loop()
        job.timers["end"] = loop.call_later(self._timeout, self._expire, job)
        if not job.is_read:
            job.timers["unread"] = loop.call_later(self._unread, self.forget, job)
        return stream

    def read(self, job_id: str) -> tuple[Job, Stream]:
        """The job for its one reader. Raises NotFoundError or ConflictError."""
        job = self._jobs.get(job_id)
        if job is None or job.stream is None:
            raise NotFoundError(
                "There is no such job.",
                hint=f"A job can be read once, within {self._unread:g} s.",
                param="job_id",
                code="JOB_NOT_FOUND",
            )
        if job.is_read:
            raise ConflictError(
                f"The job {job_id} is being read already.", param="job_id", code="JOB_IS_READ"
            )
        job.is_read = True
        job.timers.pop("unread").cancel()
        return job, job.stream

    def cancel(self, job_id: str) -> bool:
        """End the job, if there is one; whether there is."""
        job = self._jobs.get(job_id)
        if job is not None:
            job.end(CancelledError("The job was cancelled."))
        return job is not None

    def forget(self, job: Job) -> None:
        """Abort what still runs and free the id; safe to call again."""
        if self._jobs.get(job.id) is not job:
            return
        del self._jobs[job.id]
        for timer in job.timers.values():
            timer.cancel()
        if job.stream is not None:
            job.stream.close()

    def _expire(self, job: Job) -> None:
        job.end(InferenceTimeoutError(f"The job did not end within {self._timeout:g} s."))
