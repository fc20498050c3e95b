"""What vLLM's tests of its OpenAI server assert, in our own words, over a worker.

Their models cannot be brought, so no words of answers are among them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from checks.suites.outcome import PASSED, Outcome
from tests.support import http
from tests.support.programs.processes import Server, serving

_TEXT: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 5, "temperature": 0}
_CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "You answer in one sentence."},
        {"role": "user", "content": "What is 3 plus 4?"},
    ],
    "max_completion_tokens": 5,
    "temperature": 0,
}
_IDS = [40, 41, 42, 43, 44]
_ADDRESS = r"(\d{1,2}\.){3}\d{1,2}"
_BAD = 400
Check = Callable[[], object]


class _Api:
    """A worker, as vLLM's clients ask it."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def post(self, path: str, **body: Any) -> Any:
        answer = self._server.post(body, path)
        assert answer.status_code == 200, answer.text[:150]
        return answer.json()

    def text(self, **fields: Any) -> Any:
        return self.post("/v1/completions", **{**_TEXT, **fields})

    def chat(self, **fields: Any) -> Any:
        return self.post("/v1/chat/completions", **{**_CHAT, **fields})

    def said(self, **fields: Any) -> str:
        return self.chat(**fields)["choices"][0]["message"]["content"]

    def held(self, **rules: Any) -> str:
        """By structured_outputs."""
        return self.said(structured_outputs=rules, max_completion_tokens=400)

    def status(self, path: str, **body: Any) -> int:
        return self._server.post(body, path).status_code

    def bad_text(self, **fields: Any) -> bool:
        return self.status("/v1/completions", **{**_TEXT, **fields}) == _BAD

    def bad_chat(self, **fields: Any) -> bool:
        return self.status("/v1/chat/completions", **{**_CHAT, **fields}) == _BAD

    def get(self, path: str) -> Any:
        return http.get(self._server.url + path)

    def events(self, path: str, **body: Any) -> list[Any]:
        answer = self._server.post({**body, "stream": True}, path)
        lines = answer.text.split("\n\n")
        assert lines[-2] == "data: [DONE]", answer.text[:150]
        return [json.loads(line[6:]) for line in lines[:-2]]

    def texts(self, **fields: Any) -> list[Any]:
        return self.events("/v1/completions", **{**_TEXT, **fields})

    def chats(self, **fields: Any) -> list[Any]:
        return self.events("/v1/chat/completions", **{**_CHAT, **fields})


def outcome() -> Outcome:
    """Each assertion by itself."""
    with serving("--pooling", "mean") as server:
        return Outcome("vllm", {name: _judged(check) for name, check in _checks(_Api(server))})


def _judged(check: Check) -> str:
    try:
        return PASSED if check() else "false"
    except (AssertionError, LookupError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:200]


def _checks(api: _Api) -> Iterator[tuple[str, Check]]:
    yield from _completions(api)
    yield from _streams(api)
    yield from _chats(api)
    yield from _forms(api)
    yield from _others(api)


def _completions(api: _Api) -> Iterator[tuple[str, Check]]:
    def first(**fields: Any) -> Any:
        return api.text(**fields)["choices"][0]

    usage = api.text()["usage"]
    yield "usage adds up", lambda: usage["total_tokens"] == usage["prompt_tokens"] + 5
    yield "usage tells the cache", lambda: usage["prompt_tokens_details"]["cached_tokens"] >= 0
    yield "length", lambda: first()["finish_reason"] == "length"
    yield "ids are a prompt", lambda: first(prompt=_IDS)["text"]
    yield "no logprobs", lambda: first(prompt=_IDS)["logprobs"] is None
    yield "logprobs 0", lambda: len(first(logprobs=0)["logprobs"]["top_logprobs"][0]) == 1
    yield "logprobs 5", lambda: len(first(logprobs=5)["logprobs"]["top_logprobs"][0]) in (5, 6)
    yield "too many logprobs", lambda: api.bad_text(logprobs=21)
    yield "far too many logprobs", lambda: api.bad_text(logprobs=101)
    yield "negative prompt_logprobs", lambda: api.bad_text(prompt_logprobs=-1)
    yield "prompt_logprobs", lambda: len(first(prompt_logprobs=1)["prompt_logprobs"]) > 1
    yield "no prompt_logprobs", lambda: first().get("prompt_logprobs") is None
    echoed = first(echo=True, logprobs=1)
    scores = echoed["logprobs"]
    yield "echo", lambda: echoed["text"].startswith(_TEXT["prompt"])
    yield "echo: offsets", lambda: len(scores["text_offset"]) == len(scores["tokens"]) > 5
    yield "echo: the first has no logprob", lambda: scores["token_logprobs"][0] is None
    yield "echo: the first has no others", lambda: scores["top_logprobs"][0] is None
    yield "echo: one or two", lambda: {len(top) for top in scores["top_logprobs"][1:]} <= {1, 2}
    yield "echo of ids", lambda: len(first(prompt=_IDS, echo=True)["text"]) > 1
    many = api.text(n=3, temperature=1, seed=42, max_tokens=20)["choices"]
    yield "n: indices", lambda: [each["index"] for each in many] == [0, 1, 2]
    yield "n: other texts", lambda: len({each["text"] for each in many}) == 3
    for name, prompts in (("texts", ["Once upon"] * 2), ("ids", [_IDS] * 2)):
        both = api.text(prompt=prompts)["choices"]
        yield f"batch of {name}", lambda both=both: both[0]["text"] == both[1]["text"]
        parts = api.texts(prompt=prompts)
        whole = ["".join(_told(parts, place)) for place in (0, 1)]
        yield f"batch of {name} in events", lambda whole=whole: whole[0] == whole[1] != ""
        yield (
            f"beams of {name}",
            lambda prompts=prompts: (
                len(api.text(prompt=prompts, n=2, use_beam_search=True)["choices"]) == 4
            ),
        )
    cut: dict[str, Any] = {"prompt": list(range(40, 48)), "truncate_prompt_tokens": 4}
    for side, kept in (("left", [44, 45, 46, 47]), ("right", [40, 41, 42, 43])):
        yield (
            f"truncated on the {side}",
            lambda side=side, kept=kept: (
                first(**cut, truncation_side=side, return_token_ids=True)["prompt_token_ids"]
                == kept
            ),
        )
    yield "ids come back", lambda: len(first(return_token_ids=True)["token_ids"]) == 5
    yield "min_tokens", lambda: api.text(min_tokens=5)["usage"]["completion_tokens"] == 5
    yield "an empty list", lambda: api.bad_text(prompt=[])
    yield "an id that is none", lambda: api.bad_text(prompt=[10**7])
    yield "a bias that is none", lambda: api.bad_text(logit_bias={"10000000": 1})
    yield "still there", lambda: first()["text"]


def _told(events: list[Any], index: int = 0) -> list[str]:
    choices = [choice for event in events for choice in event["choices"]]
    return [each["text"] for each in choices if each["index"] == index]


def _streams(api: _Api) -> Iterator[tuple[str, Check]]:
    for name, ask, whole in (
        ("text", api.texts, lambda: api.text()["choices"][0]["text"]),
        ("chat", api.chats, api.said),
    ):
        events = ask()
        last = events[-1]["choices"][0]
        ends = [event["choices"][0]["finish_reason"] for event in events]
        parts = [each["choices"][0].get("delta", each["choices"][0]) for each in events]
        words = "".join(part.get("text", part.get("content")) or "" for part in parts)
        yield f"{name}: one end", lambda ends=ends: [*filter(None, ends)] == ["length"]
        yield f"{name}: the end is last", lambda last=last: last["finish_reason"] == "length"
        yield f"{name}: the same words", lambda words=words, whole=whole: words == whole()
        for title, options in (("no usage", {"include_usage": False}), ("nothing", {})):
            events = ask(stream_options=options)
            yield f"{name}: {title}", lambda events=events: not any(map(_usage, events))
        *before, final = ask(stream_options={"include_usage": True})
        yield f"{name}: usage at the end", lambda final=final: final["usage"]["total_tokens"] > 5
        yield f"{name}: without a choice", lambda final=final: final["choices"] == []
        yield f"{name}: none before", lambda before=before: not any(map(_usage, before))
        always = {"include_usage": True, "continuous_usage_stats": True}
        counts = [_usage(event)["completion_tokens"] for event in ask(stream_options=always)]
        yield f"{name}: always", lambda counts=counts: sorted(counts) == counts
        yield f"{name}: to the end", lambda counts=counts: counts[-1] == 5
        refused = api.bad_text if name == "text" else api.bad_chat
        for value in ({"include_usage": True}, {"include_usage": None}):
            yield (
                f"{name}: {value} without a stream",
                lambda refused=refused, value=value: refused(stream_options=value),
            )
    alone = {"include_usage": False, "continuous_usage_stats": True}
    yield "always, but no usage", lambda: not any(map(_usage, api.texts(stream_options=alone)))


def _usage(event: Any) -> Any:
    return event.get("usage")


def _chats(api: _Api) -> Iterator[tuple[str, Check]]:
    def scores(**fields: Any) -> Any:
        return api.chat(**fields)["choices"][0]["logprobs"]

    yield "chat: no logprobs", lambda: scores(logprobs=False) is None
    for count in (0, 5):
        yield (
            f"chat: top_logprobs {count}",
            lambda count=count: (
                len(scores(logprobs=True, top_logprobs=count)["content"][0]["top_logprobs"])
                == count
            ),
        )
    yield "chat: too many", lambda: api.bad_chat(logprobs=True, top_logprobs=21)
    yield "chat: far too many", lambda: api.bad_chat(logprobs=True, top_logprobs=101)
    yield "chat: role", lambda: api.chat()["choices"][0]["message"]["role"] == "assistant"
    many = api.chat(n=3, temperature=1, seed=4, max_completion_tokens=12)["choices"]
    yield "chat: n", lambda: [each["index"] for each in many] == [0, 1, 2]
    yield "chat: others", lambda: len({each["message"]["content"] for each in many}) > 1
    parts = [{"type": "text", "text": "Hello"}]
    plain, odd = {"role": "user", "content": "Hello"}, {"role": "clerk", "content": "Hello"}
    yield (
        "parts are a text",
        lambda: api.said(messages=[plain]) == api.said(messages=[{**plain, "content": parts}]),
    )
    yield (
        "roles of one's own",
        lambda: api.said(messages=[odd]) == api.said(messages=[{**odd, "content": parts}]),
    )
    yield "a field more", lambda: api.said(messages=[{**plain, "extra": "0"}])
    for seed in (-(2**63) - 1, 2**64):
        yield f"seed {seed}", lambda seed=seed: api.bad_chat(seed=seed)
    yield "chat: a bias that is none", lambda: api.bad_chat(logit_bias={"10000000": 1})
    yield "chat: ids come back", lambda: api.chat(return_token_ids=True)["prompt_token_ids"]
    path = "/invocations"
    yield "invocations", lambda: api.post(path, **_CHAT)["choices"] == api.chat()["choices"]


def _forms(api: _Api) -> Iterator[tuple[str, Check]]:
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["Tim", "Sue"]}, "age": {"type": "boolean"}},
        "required": ["name", "age"],
    }
    form = {"type": "json_schema", "json_schema": {"name": "of", "schema": schema}}
    yield "choice", lambda: api.held(choice=["Rust", "Python"]) in ("Rust", "Python")
    yield "json", lambda: json.loads(api.held(json=schema)).keys() == {"name", "age"}
    yield "regex", lambda: re.fullmatch(_ADDRESS, api.held(regex=_ADDRESS))
    yield "grammar", lambda: api.held(grammar='root ::= "a" | "b"') in "ab"
    yield (
        "json_schema",
        lambda: json.loads(api.said(response_format=form, max_completion_tokens=400)),
    )
    yield "text", lambda: api.said(response_format={"type": "text"})
    yield "a regex that is none", lambda: api.bad_chat(structured_outputs={"regex": "[.*"})
    yield "no text", lambda: api.bad_chat(structured_outputs={"regex": {"1": "Python"}})
    yield (
        "a grammar that is none",
        lambda: api.bad_text(structured_outputs={"grammar": "root ::= nothing here"}),
    )
    yield (
        "a schema that is none",
        lambda: api.bad_text(structured_outputs={"json": {"properties": {"a": "bar"}}}),
    )
    chosen = api.chat(
        logprobs=True, top_logprobs=5, structured_outputs={"choice": ["Rust", "Python"]}
    )["choices"][0]["logprobs"]["content"][0]
    yield "no -inf", lambda: all(each["logprob"] >= -9999 for each in chosen["top_logprobs"])


def _others(api: _Api) -> Iterator[tuple[str, Check]]:
    for path in ("/health", "/ping", "/version", "/load", "/metrics"):
        yield path, lambda path=path: api.get(path).status_code == 200
    served = api.get("/v1/models").json()["data"][0]
    yield "max_model_len", lambda: served["max_model_len"] > 0
    said = api.post("/tokenize", prompt="Once upon a time")
    yield "tokenize: count", lambda: said["count"] == len(said["tokens"])
    yield "tokenize: most", lambda: said["max_model_len"] == served["max_model_len"]
    again = api.post("/detokenize", tokens=said["tokens"])
    yield "detokenize", lambda: again["prompt"].endswith("Once upon a time")
    yield "tokenize a chat", lambda: api.post("/tokenize", messages=_CHAT["messages"])["count"] > 5
    both = api.post("/v1/embeddings", input=["a cat", "a dog"])
    yield "embeddings", lambda: [each["index"] for each in both["data"]] == [0, 1]
    coded = api.post("/v1/embeddings", input="a cat", encoding_format="base64")
    yield "embeddings in base64", lambda: isinstance(coded["data"][0]["embedding"], str)
    score = api.post("/score", text_1="a cat", text_2=["a cat", "a dog"])
    yield "score", lambda: len(score["data"]) == 2
