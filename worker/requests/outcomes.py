"""How requests were answered, counted."""

from __future__ import annotations

from collections import Counter
from http import HTTPStatus

# Of codes. There are fewer; a label never grows beyond it all the same.
_MOST = 100
OTHER = "other"


class Outcomes:
    """Sums since the start; they only grow.

    by_route  (route, status) -> answers; `other` are paths that are no route
    errors    (code, status) -> answers that told of an error, also in the middle of a stream
    """

    def __init__(self) -> None:
        self.by_route: Counter[tuple[str, str]] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()

    def note(self, route: str | None, status: int | None, code: str | None) -> None:
        """One has ended.

        route: its method and the path's pattern; None: there is none
        status: None: its client left before
        code: of the error that was told; None: none, or Litestar's own
        """
        shown = "none" if status is None else str(status)
        self.by_route[route or OTHER, shown] += 1
        if code is None and status is not None and status >= 400:
            code = HTTPStatus(status).name.lower()
        if code is not None:
            known = (code, shown) in self.errors or len(self.errors) < _MOST
            self.errors[code if known else OTHER, shown] += 1
