"""People who talk to a server for an hour: they come back, leave early, and say too much."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

# The syllables that random words are made of. In the demo model's vocabulary a word is two tokens.
SYLLABLES = ("ba", "do", "fi", "ga", "ho", "ka", "li", "mo", "na", "po", "ra", "se", "ti", "wo")
NUM_SYSTEM_PROMPTS = 3
MAX_CONVERSATIONS = 200
TIMEOUT_S = 300.0

TalkMessage = dict[str, str]


@dataclass
class Totals:
    """What all talkers have got so far; threads write it under the lock.

    answers   by what was asked: "new", "again", "once", "long"; those that were left: "cancelled"
    errors    by their text
    prompt_tokens, cached_tokens  by the same words as `answers`
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    answers: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    prompt_tokens: Counter[str] = field(default_factory=Counter[str])
    cached_tokens: Counter[str] = field(default_factory=Counter[str])

    @property
    def hit_rate(self) -> float:
        """Cached tokens / prompt tokens, of answers that were read to their end."""
        return self.cached_tokens.total() / max(self.prompt_tokens.total(), 1)


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = _Delta()
    text: str = ""


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class Talkers:
    """Tasks that ask as fast as they are answered, until `stop`; one thread runs them all.

    Of ten requests about five go on with a conversation of anybody, two begin one with one of
    three system prompts, two are asked once; one in ten of all is left after a few tokens, and
    one in fifty is longer than a stream. The same seed gives the same questions.

    context, stream  tokens that the server's context, and one of its streams, can hold
    """

    def __init__(self, url: str, count: int, context: int, stream: int, seed: int = 0) -> None:
        self.totals = Totals()
        self._url = url
        self._context = context
        self._stream = stream
        self._conversations: list[list[TalkMessage]] = []
        self._words_per_token = self._measured(random.Random(seed))
        self._chats = self._has_template()
        draw = random.Random(seed)
        size = min(stream // 4, 400)
        self._system_prompts = [self._text(draw, size) for _ in range(NUM_SYSTEM_PROMPTS)]
        seeds = [seed * 1_000 + number + 1 for number in range(count)]
        self._loop = asyncio.new_event_loop()
        self._tasks = [self._loop.create_task(self._run(one)) for one in seeds]
        self._thread = threading.Thread(target=self._run_all)
        self._thread.start()

    def stop(self) -> None:
        """They hang up: a long prompt would be read for minutes."""
        for task in self._tasks:
            self._loop.call_soon_threadsafe(task.cancel)
        self._thread.join(TIMEOUT_S)

    def _run_all(self) -> None:
        self._loop.run_until_complete(asyncio.wait(self._tasks))
        self._loop.close()

    async def _run(self, seed: int) -> None:
        draw = random.Random(seed)
        async with httpx.AsyncClient(base_url=self._url, timeout=TIMEOUT_S) as client:
            while True:
                await self._turn(client, draw)

    async def _turn(self, client: httpx.AsyncClient, draw: random.Random) -> None:
        """Ask once, and remember what comes back later."""
        kind = draw.choices(["again", "new", "once", "long"], [50, 22, 26, 2])[0]
        messages: list[TalkMessage] = []
        with self.totals.lock:
            if kind == "again" and self._conversations:
                place = draw.randrange(len(self._conversations))
                messages = self._conversations.pop(place)
        if not messages:
            kind = "new" if kind == "again" else kind
        if kind == "new":
            prompt = draw.choice(self._system_prompts)
            messages = [{"role": "system", "content": prompt}]
        low, high = 8, self._stream // 8
        if kind == "once":
            high = self._stream // 2
        elif kind == "long":
            low, high = self._stream, max(self._stream, int(self._context * 0.6))
        question = self._text(draw, draw.randint(low, max(low, high)))
        messages = [*messages, {"role": "user", "content": question}]
        leaves = draw.randint(1, 8) if draw.random() < 0.1 else None
        answer, num_tokens = await self._ask(client, kind, messages, draw.randint(8, 64), leaves)
        # A conversation ends where the next turn might not fit.
        if kind in ("new", "again") and answer and num_tokens < self._stream * 0.75:
            with self.totals.lock:
                self._conversations.append([*messages, {"role": "assistant", "content": answer}])
                if len(self._conversations) > MAX_CONVERSATIONS:
                    del self._conversations[0]

    async def _ask(
        self,
        client: httpx.AsyncClient,
        kind: str,
        messages: list[TalkMessage],
        max_tokens: int,
        leaves: int | None,
    ) -> tuple[str, int]:
        """The answer's text and how many tokens prompt and answer have; "" where there is none.

        leaves: the connection is closed after so many events
        """
        path, question = "/v1/chat/completions", {"messages": messages}
        if not self._chats:
            path = "/v1/completions"
            question = {"prompt": "\n".join(message["content"] for message in messages)}
        body = {
            **question, "max_tokens": max_tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True},
        }  # fmt: skip
        text, usage, events = "", None, 0
        try:
            async with client.stream("POST", path, json=body) as response:
                if response.status_code != 200:
                    error = msgspec.json.decode(await response.aread(), type=_Event).error or {}
                    return await self._failed(f"HTTP {response.status_code}: {error.get('code')}")
                async for line in response.aiter_lines():
                    if not line.startswith("data:") or line.endswith("[DONE]"):
                        continue
                    event = msgspec.json.decode(line[5:], type=_Event)
                    if event.error:
                        return await self._failed(str(event.error))
                    text += "".join(c.delta.content or c.text for c in event.choices)
                    usage = event.usage or usage
                    events += 1
                    if events == leaves:
                        with self.totals.lock:
                            self.totals.answers["cancelled"] += 1
                        return "", 0
        except httpx.HTTPError as error:
            return await self._failed(f"{type(error).__name__}: {error}")
        if usage is None:
            return await self._failed("an answer without its usage")
        with self.totals.lock:
            self.totals.answers[kind] += 1
            self.totals.prompt_tokens[kind] += usage["prompt_tokens"]
            details: dict[str, int] = usage.get("prompt_tokens_details") or {}
            self.totals.cached_tokens[kind] += details.get("cached_tokens", 0)
        return text, usage["total_tokens"]

    async def _failed(self, reason: str) -> tuple[str, int]:
        with self.totals.lock:
            self.totals.errors[reason] += 1
        await asyncio.sleep(0.1)  # whoever is refused at once does not ask again at once
        return "", 0

    def _text(self, draw: random.Random, num_tokens: int) -> str:
        """Random words of about so many tokens."""
        return _words(draw, max(1, int(num_tokens * self._words_per_token)))

    def _has_template(self) -> bool:
        """Whether the model knows chats; else the messages are sent as one text."""
        body = {"messages": [{"role": "user", "content": "ba"}], "max_tokens": 1}
        answer = httpx.post(self._url + "/v1/chat/completions", json=body, timeout=TIMEOUT_S)
        return answer.status_code == 200

    def _measured(self, draw: random.Random) -> float:
        """Words per token in this model's vocabulary."""
        num_words = self._stream // 4
        body = {"prompt": _words(draw, num_words), "max_tokens": 1}
        answer = httpx.post(self._url + "/v1/completions", json=body, timeout=TIMEOUT_S)
        answer.raise_for_status()
        return num_words / answer.json()["usage"]["prompt_tokens"]


def _words(draw: random.Random, count: int) -> str:
    return " ".join("".join(draw.choices(SYLLABLES, k=2)) for _ in range(count))


def scrape(url: str) -> dict[str, float]:
    """The worker's own samples of GET /metrics without labels; {} where it does not answer."""
    with contextlib.suppress(httpx.HTTPError):
        lines = httpx.get(url + "/metrics", timeout=30).text.splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if line.startswith("worker_")]
        return {name.partition("{")[0]: float(value) for name, value in pairs}
    return {}
