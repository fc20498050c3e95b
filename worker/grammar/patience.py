"""How long who compiles a constraint may wait for it."""

from __future__ import annotations

from contextvars import ContextVar

# Whether a constraint may take all that one may take, or only what ordinary ones do.
IS_PATIENT: ContextVar[bool] = ContextVar("is_patient", default=True)


class ImpatientError(Exception):
    """A constraint takes longer than ordinary ones, and who asks for it does not wait so long.

    It says nothing about the constraint: ask again with patience.
    """
