"""Everything that the fleet raises on purpose. A message is one sentence; `hint` is the next step.

FleetError                exit 1
├── UsageError            exit 2   the command line or fleet.toml is wrong
├── BindError             exit 3   the address cannot be bound
├── DoesNotFitError       exit 4   a replica has no place
├── SaidError             as its worker left: what the worker says of a model or its options
└── RefusedError          an answer of the gateway's own, with its status
"""

from __future__ import annotations


class FleetError(Exception):
    """`code` is a word for programs, the message is for people."""

    exit_code: int = 1
    code: str = "FLEET"

    def __init__(self, message: str, *, hint: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.code

    def __str__(self) -> str:
        """The sentence and, where there is one, the next step."""
        return f"{self.message} {self.hint}" if self.hint else self.message


class UsageError(FleetError):
    """The command line or the fleet's file is wrong."""

    exit_code = 2
    code = "USAGE"


class BindError(FleetError):
    """The listening address is in use, or this machine does not have it."""

    exit_code = 3
    code = "CANNOT_BIND"


class DoesNotFitError(FleetError):
    """A replica has no place on the machines there are."""

    exit_code = 4
    code = "DOES_NOT_FIT"


class SaidError(FleetError):
    """A worker's command left with an error."""

    def __init__(self, message: str, code: str, exit_code: int) -> None:
        super().__init__(message, code=code)
        self.exit_code = exit_code


# Statuses of the gateway's own answers -> the code where none is given.
_CODES = {
    400: "invalid_request", 401: "INVALID_API_KEY", 403: "forbidden", 404: "not_found",
    408: "timeout", 413: "too_large", 429: "queue_full", 501: "not_supported",
    503: "unavailable",
}  # fmt: skip


class RefusedError(FleetError):
    """The gateway's own answer to a request; `param`: the field that is wrong."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        hint: str | None = None,
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=code or _CODES[status])
        self.status = status
        self.param = param
