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
        ├── CancelledError                   http 499  by another request; its client is told
        ├── LeftError                        http 499  nobody reads the answer any more
        ├── NotSupportedError                http 501  a part of an API that is not here
        ├── UnavailableError                 http 503  loading, draining or failed
        └── InferenceTimeoutError            http 504  a job that took too long

Foreign errors are translated where they are met; `cli/main.py` turns these into exit codes and
`api/common/errors.py` into HTTP. A message is one sentence; `hint` is the next step.
"""

from __future__ import annotations

from typing import ClassVar


class WorkerError(Exception):
    """Base of all deliberate errors.

    `code` is a stable upper-case word for programs, the message is for people.
    """

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    default_code: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, hint: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.default_code

    def __str__(self) -> str:
        """The sentence and, where there is one, the next step."""
        return f"{self.message} {self.hint}" if self.hint else self.message


class UsageError(WorkerError):
    """The command line, the environment or a name given there is wrong."""

    exit_code = 2
    default_code = "USAGE"


class BindError(WorkerError):
    """The listening address is in use, or this machine does not have it."""

    exit_code = 3
    default_code = "CANNOT_BIND"


class DoesNotFitError(WorkerError):
    """The model, or the context that was asked for, needs more memory than there is."""

    exit_code = 4
    default_code = "DOES_NOT_FIT"


class CallbackError(WorkerError):
    """The pool manager did not accept the ready callback, and all retries are used up."""

    exit_code = 5
    default_code = "CALLBACK_REFUSED"


class StalledError(WorkerError):
    """The engine's thread hangs. Only a new process helps."""

    default_code = "ENGINE_STALLED"


class ModelFileError(WorkerError):
    """A file that cannot be used as a model, with the place where it went wrong.

    code:   what is wrong, from a fixed list (see `model/checks/model.py`)
    offset: byte offset in the file, where one is known
    field:  the header field, metadata key or tensor name
    got:    what the file says
    limit:  what would have been accepted
    """

    default_code = "MODEL_FILE"

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


class DiskSpaceError(WorkerError):
    """The disk has less room than the file that is to be written needs."""

    default_code = "NO_DISK_SPACE"


class DownloadError(WorkerError):
    """The Hub cannot be reached, does not have the file, or sent something else."""

    default_code = "DOWNLOAD_FAILED"


class BackendError(WorkerError):
    """llama.cpp refused or failed."""

    default_code = "BACKEND"


class ModelLoadError(BackendError):
    """llama.cpp could not load a file that passed our own checks."""

    default_code = "MODEL_LOAD_FAILED"


class ResidencyError(BackendError):
    """Layers or the KV cache landed on another device than the one asked for."""

    default_code = "NOT_RESIDENT"


class DecodeError(BackendError):
    """A batch failed, and computing it again would fail too."""

    default_code = "DECODE_FAILED"


class RequestError(WorkerError):
    """A request that is wrong; `param` names the field."""

    http_status = 400
    default_code = "invalid_request"

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


class NotAuthenticatedError(RequestError):
    """The API key is missing or wrong."""

    http_status = 401
    default_code = "INVALID_API_KEY"


class ForbiddenError(RequestError):
    """Only programs on this machine may ask for this."""

    http_status = 403
    default_code = "forbidden"


class NotFoundError(RequestError):
    """No such path, model or job."""

    http_status = 404
    default_code = "not_found"


class ContextLengthError(RequestError):
    """A prompt that is longer than the context of one sequence.

    count       its tokens
    max_length  tokens that the context holds
    most        of them, that a prompt may have: the answer has room of its own

    Agents look for these words of llama-server and of Anthropic's API, and for the two numbers, and
    shorten the conversation then.
    """

    default_code = "context_length_exceeded"

    def __init__(
        self, count: int, max_length: int, *, param: str | None = None, most: int | None = None
    ) -> None:
        most = max_length if most is None or count > max_length else most
        super().__init__(
            f"prompt is too long: {count} tokens > {most} maximum; it exceeds the available "
            f"context size ({max_length} tokens).",
            param=param,
            hint="Shorten it; a larger --ctx-size helps where the model was trained for more.",
        )
        self.count = count
        self.max_length = max_length


class ConflictError(RequestError):
    """The job is in a state that does not allow this, for example running already."""

    http_status = 409
    default_code = "conflict"


class TooLargeError(RequestError):
    """The body is larger than the service reads."""

    http_status = 413
    default_code = "too_large"


class QueueFullError(RequestError):
    """The queue is full: as many requests wait as are allowed to."""

    http_status = 429
    default_code = "queue_full"
    retry_after_s: ClassVar[int] = 1


class CancelledError(RequestError):
    """The request was cancelled by another one."""

    http_status = 499
    default_code = "cancelled"


class LeftError(RequestError):
    """The client left before there was an answer."""

    http_status = 499
    default_code = "left"


class NotSupportedError(RequestError):
    """A part of an API that this worker does not have."""

    http_status = 501
    default_code = "not_supported"


class UnavailableError(RequestError):
    """The worker is loading, draining or has failed. Another may answer, or this one later."""

    http_status = 503
    default_code = "unavailable"
    retry_after_s: ClassVar[int] = 1


class InferenceTimeoutError(RequestError):
    """The job took longer than a job may take."""

    http_status = 504
    default_code = "INFERENCE_TIMEOUT"
