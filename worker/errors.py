"""Everything we raise on purpose.

    WorkerError                     exit 1   http 500
    ├── UsageError                  exit 2             wrong options, unknown names
    ├── BindError                   exit 3             the address cannot be bound
    ├── DoesNotFitError             exit 4             model or context larger than the memory
    ├── ModelFileError              exit 1             a file that is not a usable GGUF model
    ├── BackendError                exit 1             llama.cpp said no
    │   ├── ModelLoadError                             a checked file that it could not load
    │   ├── ResidencyError                             layers are not where they were asked to be
    │   └── DecodeError                                a batch failed for good
    └── RequestError                         http 400  a request that cannot be served as it is
        ├── NotFoundError                    http 404
        ├── TooLargeError                    http 413
        ├── QueueFullError                   http 429  come back later
        └── UnavailableError                 http 503  loading, draining or failed

Foreign errors are translated where they are met; `cli/main.py` turns these into exit codes and
`service/errors.py` into HTTP. A message is one sentence; `hint` is the next step.
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
    """The listening address is taken or not ours."""

    exit_code = 3
    default_code = "CANNOT_BIND"


class DoesNotFitError(WorkerError):
    """The model or the asked-for context needs more memory than there is."""

    exit_code = 4
    default_code = "DOES_NOT_FIT"


class ModelFileError(WorkerError):
    """A file that cannot be used as a model, with the place where it went wrong.

    code:   what is wrong, from a fixed list (see `model/checks.py`)
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
    """A batch failed in a way that a retry does not mend."""

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


class NotFoundError(RequestError):
    """No such path, model or job."""

    http_status = 404
    default_code = "not_found"


class TooLargeError(RequestError):
    """The body is larger than the service reads."""

    http_status = 413
    default_code = "too_large"


class QueueFullError(RequestError):
    """As many requests wait as may wait."""

    http_status = 429
    default_code = "queue_full"
    retry_after_s: ClassVar[int] = 1


class UnavailableError(RequestError):
    """Loading, draining or failed: another worker may answer, or this one later."""

    http_status = 503
    default_code = "unavailable"
    retry_after_s: ClassVar[int] = 1
