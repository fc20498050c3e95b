"""The lines of requests in the log."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextvars import Context

from worker import log
from worker.requests.views import EndedRequest

# Of those that are refused before their body is read: lines in a second. Hundreds may come at
# the same moment, and each would wait for the lines of those before it.
_MOST_EARLY = 10
_PERIOD_S = 1.0


class Lines:
    """A line for each request; where very many are refused early, one for what they have in common.

    On the event loop.
    """

    def __init__(self) -> None:
        self._num_early = 0  # in the second at hand
        self._untold: Counter[tuple[int | None, str | None]] = Counter()

    def tell(self, ended: EndedRequest, num_sequences: int, *, early: bool) -> None:
        """It has ended. early: it was refused before its body was read"""
        if early:
            self._num_early += 1
            if self._num_early == 1:
                asyncio.get_running_loop().call_later(_PERIOD_S, self.close)
            if self._num_early > _MOST_EARLY:
                self._untold[ended.status, ended.code] += 1
                return
        # The request at hand may be another one, such as that which cancelled this one.
        Context().run(_tell, ended, num_sequences)

    def close(self) -> None:
        """A second is over, or all of them: tell how many had no line."""
        untold, self._untold, self._num_early = self._untold, Counter(), 0
        for (status, code), count in untold.items():
            Context().run(_tell_count, status, code, count)


def _tell_count(status: int | None, code: str | None, count: int) -> None:
    log.get("service").info("requests", outcome="refused", status=status, code=code, count=count)


def _tell(ended: EndedRequest, num_sequences: int) -> None:
    fields = {
        "route": ended.route,
        "model": ended.model,
        "status": ended.status,
        "outcome": ended.outcome,
        "duration_s": ended.duration_s,
        "x_request_id": ended.id,
    }
    if num_sequences:
        fields |= {
            "sequences": num_sequences,
            "prompt_tokens": ended.prompt_tokens,
            "cached_tokens": ended.cached_tokens,
            "generated_tokens": ended.generated_tokens,
            "wait_s": ended.wait_s,
            "first_token_s": ended.first_token_s,
            "tokens_per_second": ended.tokens_per_second,
        }
    if ended.code is not None:
        fields["code"] = ended.code
    if ended.correlation_id is not None:
        fields["x_correlation_id"] = ended.correlation_id
    log.get("service").info("request", **fields)
