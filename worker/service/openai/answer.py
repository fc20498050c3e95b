"""What the OpenAI API's two ways to answer share: the head, the events of a stream, the usage."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from worker import __version__
from worker.engine.request import Request
from worker.engine.sequence import Delta
from worker.lifecycle.worker import Worker
from worker.service import sse
from worker.service.exchange import Exchange
from worker.service.openai.completion_schemas import StreamOptions
from worker.service.usage import UsageCount


class OpenAIExchange(Exchange):
    """Frames deltas as events; a subclass says what a choice is and folds them into one reply.

    usage  of all choices together
    head   the fields with which every reply and every event begins
    """

    def __init__(
        self,
        worker: Worker,
        requests: Sequence[Request],
        *,
        prefix: str = "",
        prompt_tokens: int,
        streaming: bool,
        options: StreamOptions | None,
    ) -> None:
        """Hands the requests to the engine. prefix: of the id that the requests have in common."""
        self._include_usage = bool(options and options.include_usage)
        self._usage_always = bool(options and options.continuous_usage_stats)
        self.usage = UsageCount(prompt_tokens)
        self.head: dict[str, Any] = {
            "id": prefix + requests[0].id.rsplit("-", 1)[0],
            "created": int(time.time()),
            "model": worker.model_id,
            "system_fingerprint": f"gguf-worker-{__version__}",
        }
        super().__init__(worker.engine.submit(requests), streaming=streaming)

    @abstractmethod
    def event(self, delta: Delta) -> object | None:
        """The choice that tells of a delta; None where there is nothing to tell."""

    @abstractmethod
    def reply(self, choices: list[Any], **more: Any) -> msgspec.Struct:
        """An event of a stream with these choices."""

    async def frames(self) -> AsyncIterator[bytes]:
        """Events with what each step added; then usage, where asked for."""
        blank: Any = None if self._include_usage else msgspec.UNSET
        while self.stream.is_running:
            for delta in await self.stream.take():
                self.usage.add(delta)
                choice = self.event(delta)
                if choice is None:
                    continue
                more: dict[str, Any] = {"usage": blank}
                if self._usage_always:
                    more["usage"] = self.usage.usage()
                if delta.finish_reason:
                    more["timings"] = self.usage.timings()
                yield sse.frame(self.reply([choice], **more))
        if self._include_usage:
            yield sse.frame(self.reply([], usage=self.usage.usage()))


def tells(delta: Delta) -> bool:
    """Whether there is an event in it. A token that is no text yet, a part of a character, is one
    all the same: clients count and time tokens by events."""
    return bool(delta.text or delta.finish_reason or delta.token is not None)
