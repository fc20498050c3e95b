"""Follows the prompts of one request to their end, and says then what the cache gave of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from worker.engine.request import Request
from worker.engine.sequence import Delta
from worker.requests.prompts import ChatParts, RecentPrompts
from worker.requests.trace import CacheTrace, TracedPrompt


class PromptTracer:
    """trace: None until all sequences have ended, and where none of them came to an answer"""

    def __init__(
        self,
        recent: RecentPrompts,
        owner: str,
        requests: Sequence[Request],
        copies: int,
        parts: ChatParts | None,
        spelled: Sequence[bytes] | Mapping[int, bytes],
    ) -> None:
        """
        owner     the digest of the key, or nothing
        requests  those of a prompt side by side, `copies` of each
        parts     of the one prompt, where that is a conversation's
        spelled   token id -> bytes, control tokens spelled out
        """
        self.trace: CacheTrace | None = None
        self._recent, self._parts, self._spelled = recent, parts, spelled
        self._prompts = {request.id: n // copies for n, request in enumerate(requests)}
        self._known = [recent.begin(owner, each.prompt, parts) for each in requests[::copies]]
        self._ends: dict[int, Delta] = {}
        self._running = len(requests)

    def end(self, delta: Delta) -> None:
        """One of them has; its last delta. Of copies the one that found the least counts."""
        self._running -= 1
        place, reuse = self._prompts[delta.id], delta.reuse
        if reuse is not None:
            other = self._ends.get(place)
            if other is None or delta.cached_tokens < other.cached_tokens:
                self._ends[place] = delta
        if not self._running:
            self.close({})

    def close(self, admitted_at: Mapping[str, float]) -> None:
        """All have ended, or nobody reads on. admitted_at: when those began to run that did"""
        traces = list[CacheTrace]()
        for place, known in enumerate(self._known):
            delta = self._ends.get(place)
            if delta is None or delta.reuse is None or delta.timings is None:
                names = [name for name, number in self._prompts.items() if number == place]
                began = max(admitted_at.get(name, 0.0) for name in names)
                self._recent.end(known, None, began, time.monotonic())
                continue
            admitted = delta.timings.admitted
            if delta.finish_reason is not None:
                traced = TracedPrompt(
                    known, delta.reuse, delta.cached_tokens, self._parts, self._spelled
                )
                traces.append(traced.trace(self._recent, admitted, place))
            self._recent.end(known, delta.reuse, admitted, delta.timings.finished)
        self._known = []
        if traces:
            self.trace = max(traces, key=_num_read)


def _num_read(trace: CacheTrace) -> int:
    return trace.prompt_tokens - trace.cached_tokens
