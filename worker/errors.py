"""Everything we raise on purpose.

    WorkerError                     exit 1   http 500
    ├── UsageError                  exit 2             wrong options, unknown names
    ├── BindError                   exit 3             the address cannot be bound
    ├── DoesNotFitError             exit 4             model or context larger than the memory
    ├── CallbackError               exit 5             the manager refused the ready callback
    ├── StalledError                exit 1             the engine gives no sign of life
    ├── ModelFileError              exit 1             a file that is not a usable GGUF model
    ├── DiskSpaceError              exit 1             the disk has no room for a file
    ├── DownloadError               exit 1             a file could not be got from the Hub whole
    ├── BackendError                exit 1             llama.cpp refused or failed
    │   ├── ModelLoadError                             a checked file that it could not load
    │   ├── ResidencyError                             layers are not where they were asked to be
    │   └── DecodeError                                a batch failed for good
    └── RequestError                         http 400  a request that cannot be served as it is
        ├── NotAuthenticatedError            http 401
        ├── ForbiddenError                   http 403
        ├── NotFoundError                    http 404
        ├── ContextLengthError               http 400  longer than the context of one sequence
        ├── ConflictError                    http 409  the job is in another state
        ├── TooLargeError                    http 413
        ├── QueueFullError                   http 429  come back later
        ├── RateLimitError                   http 429  the key's requests or tokens of a minute
        ├── CancelledError                   http 499  by another request; its client is told
        ├── LeftError                        http 499  nobody reads the answer any more
        ├── NotSupportedError                http 501  a part of an API that is not here
        ├── UnavailableError                 http 503  loading, draining or failed
        │   └── WakeError                              the model cannot be loaded again now
        ├── InferenceTimeoutError            http 504  a job that took too long
        └── StorageFullError                 http 507  the disk of a folder of ours is full

Foreign errors are translated where they are met; `cli/main.py` turns these into exit codes and
`api/answer/errors.py` into HTTP. A message is one sentence; `hint` is the next step.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from typing import ClassVar

# How the loader of libraries and Python's threads say that there is no memory, in errors that mean
# other things too.
_EXHAUSTED = ("cannot allocate memory", "failed to map segment", "can't start new thread")


class WorkerError(Exception):
    """Base of all deliberate errors.

    `code` is a stable upper-case word for programs, the message is for people.
    """

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    default_code: ClassVar[str] = "INTERNAL"

    def __init_subclass__(cls, *, exit_code: int = 0, http_status: int = 0, code: str = "") -> None:
        cls.exit_code = exit_code or cls.exit_code
        cls.http_status = http_status or cls.http_status
        cls.default_code = code or cls.default_code

    def __init__(self, message: str, *, hint: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.default_code

    def __str__(self) -> str:
        """The sentence and, where there is one, the next step."""
        return f"{self.message} {self.hint}" if self.hint else self.message


class UsageError(WorkerError, exit_code=2, code="USAGE"):
    """The command line, the environment or a name given there is wrong."""


class BindError(WorkerError, exit_code=3, code="CANNOT_BIND"):
    """The listening address is in use, or this machine does not have it."""


class DoesNotFitError(WorkerError, exit_code=4, code="DOES_NOT_FIT"):
    """The model, or the context that was asked for, needs more memory than there is."""


class CallbackError(WorkerError, exit_code=5, code="CALLBACK_REFUSED"):
    """The pool manager did not accept the ready callback, and all retries are used up."""


class StalledError(WorkerError, code="ENGINE_STALLED"):
    """The engine's thread hangs. Only a new process helps."""


class ModelFileError(WorkerError, code="MODEL_FILE"):
    """A file that cannot be used as a model, with the place where it went wrong.

    code:   what is wrong, from a fixed list (see `model/checks/model.py`)
    offset: byte offset in the file, where one is known
    field:  the header field, metadata key or tensor name
    got:    what the file says
    limit:  what would have been accepted
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        offset: int | None = None,
        field: str | None = None,
        got: object = None,
        limit: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.offset = offset
        self.field = field
        self.got = got
        self.limit = limit


class DiskSpaceError(WorkerError, code="NO_DISK_SPACE"):
    """The disk has less room than the file that is to be written needs."""


class DownloadError(WorkerError, code="DOWNLOAD_FAILED"):
    """The Hub cannot be reached, does not have the file, or sent something else."""


class BackendError(WorkerError, code="BACKEND"):
    """llama.cpp refused or failed."""


class ModelLoadError(BackendError, code="MODEL_LOAD_FAILED"):
    """llama.cpp could not load a file that passed our own checks."""


class ResidencyError(BackendError, code="NOT_RESIDENT"):
    """Layers or the KV cache landed on another device than the one asked for."""


class DecodeError(BackendError, code="DECODE_FAILED"):
    """A batch failed, and computing it again would fail too."""


class RequestError(WorkerError, http_status=400, code="invalid_request"):
    """A request that is wrong; `param` names the field."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        hint: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.param = param


class NotAuthenticatedError(RequestError, http_status=401, code="INVALID_API_KEY"):
    """The API key is missing or wrong."""


class ForbiddenError(RequestError, http_status=403, code="forbidden"):
    """Only programs on this machine may ask for this."""


class NotFoundError(RequestError, http_status=404, code="not_found"):
    """No such path, model or job."""


class ContextLengthError(RequestError, code="context_length_exceeded"):
    """A prompt that is longer than the context of one sequence.

    count       its tokens
    max_length  tokens that the context holds
    most        of them, that a prompt may have: the answer has room of its own
    what        what the client calls the prompt

    Agents look for these words of llama-server and of Anthropic's API, and for the two numbers, and
    shorten the conversation then.
    """

    def __init__(
        self,
        count: int,
        max_length: int,
        *,
        param: str | None = None,
        most: int | None = None,
        what: str = "prompt",
        hint: str = "Shorten it; a larger --ctx-size helps if the model was trained for more.",
    ) -> None:
        most = max_length if most is None or count > max_length else most
        super().__init__(
            f"{what} is too long: {quantity(count, 'token')} > {most} maximum; it exceeds the "
            f"available context size ({quantity(max_length, 'token')}).",
            param=param,
            hint=hint,
        )
        self.count = count
        self.max_length = max_length


class ConflictError(RequestError, http_status=409, code="conflict"):
    """The job is in a state that does not allow this, for example running already."""


class TooLargeError(RequestError, http_status=413, code="too_large"):
    """The body is larger than the service reads."""


class QueueFullError(RequestError, http_status=429, code="queue_full"):
    """The queue is full: as many requests wait as are allowed to."""

    retry_after_s: ClassVar[int] = 1


class RateLimitError(RequestError, http_status=429, code="rate_limit_exceeded"):
    """The key's requests or tokens of a minute are used up."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message, hint=f"Try again in {quantity(retry_after_s, 'second')}.")
        self.retry_after_s = retry_after_s


class CancelledError(RequestError, http_status=499, code="cancelled"):
    """The request was cancelled by another one."""


class LeftError(RequestError, http_status=499, code="left"):
    """The client left before there was an answer."""


class NotSupportedError(RequestError, http_status=501, code="not_supported"):
    """A part of an API that this worker does not have."""


class UnavailableError(RequestError, http_status=503, code="unavailable"):
    """The worker is loading, draining or has failed. Another may answer, or this one later."""

    retry_after_s: ClassVar[int] = 1


class WakeError(UnavailableError, code="wake_failed"):
    """The model sleeps, and could not be loaded again. The next request tries again."""

    retry_after_s: ClassVar[int] = 5


class InferenceTimeoutError(RequestError, http_status=504, code="INFERENCE_TIMEOUT"):
    """The job took longer than a job may take."""


class StorageFullError(RequestError, http_status=507, code="storage_full"):
    """The disk of `--state-dir` or `--slot-save-path` has no room."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The beginning of a hint, with a space behind it: a known word that is close, or nothing."""
    words = list(known)
    longer = [each for each in words if len(word.strip("-")) > 2 and each.startswith(word)]
    near = sorted(longer, key=len) or difflib.get_close_matches(word, words, n=1, cutoff=0.7)
    return f"Did you mean {near[0]}? " if near else ""


def quantity(count: int, noun: str, form: str = "") -> str:
    """`1 token`, `2 tokens`: of a noun whose plural has an s. form: of the number"""
    return f"{count:{form}} {noun}{'' if count == 1 else 's'}"


def out_of_memory(error: BaseException) -> DoesNotFitError | None:
    """The error that one of Python's own stands for, where memory ran out; else None."""
    said = str(error).lower()
    if (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, ImportError | RuntimeError) and any(w in said for w in _EXHAUSTED))
    ):
        return DoesNotFitError("Memory ran out.", hint="Free some, or raise the limit.")
    return None
