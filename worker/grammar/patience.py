"""How long who makes a request ready may go on."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

# Whether a constraint may take all that one may take, or only what ordinary ones do.
IS_PATIENT: ContextVar[bool] = ContextVar("is_patient", default=True)
# Says whether the client for whom it is made ready has left.
HAS_LEFT: ContextVar[Callable[[], bool]] = ContextVar("has_left", default=lambda: False)


class ImpatientError(Exception):
    """A constraint takes longer than ordinary ones, and who asks for it does not wait so long.

    It says nothing about the constraint: ask again with patience.
    """
