"""An Ollama client's body as a ChatInput."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.facts import facts_over
from tests.support.sessions import load
from worker.api.intake.chat.chat_input import ChatInput
from worker.api.intake.facts import ModelFacts
from worker.api.ollama.chat_input import chat_input_of, check_generate, continuation_of, question_of
from worker.api.ollama.schemas import GenerateRequest, OllamaChatRequest
from worker.budget import UNBOUNDED
from worker.chat.format import Thinking
from worker.chat.message import Call, Message, Tool
from worker.errors import RequestError

HELLO = [{"role": "user", "content": "hello"}]
SKY = {"type": "function", "function": {"name": "sky", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def facts(tiny: Path) -> Generator[ModelFacts]:
    with load(tiny) as backend:
        yield facts_over(backend, tiny)


def talk(facts: ModelFacts, **fields: Any) -> ChatInput:
    return chat_input_of(
        msgspec.convert({"messages": HELLO, **fields}, OllamaChatRequest), facts, UNBOUNDED
    )


def test_history(facts: ModelFacts) -> None:
    """Calls get ids where they have none, and results find their calls."""
    sky = {"function": {"name": "sky", "arguments": {"at": "Rome"}}}
    found = talk(
        facts,
        messages=[
            {"role": "system", "content": "be kind"},
            *HELLO,
            {"role": "assistant", "content": "", "thinking": "Rain?",
             "tool_calls": [sky, {"function": {"name": "now"}}, sky]},
            {"role": "tool", "content": "12:00", "tool_name": "now"},
            {"role": "tool", "content": "blue"},
            {"role": "tool", "content": "red", "tool_name": "sky"},
            {"role": "tool", "content": "?", "tool_name": "sea"},
            {"role": "assistant", "content": "ok", "tool_calls": [{**sky, "id": "abc"}]},
            {"role": "tool", "tool_call_id": "abc"},
        ],
    )  # fmt: skip
    rome = '{"at":"Rome"}'
    assert found.messages[2:] == (
        Message(
            role="assistant",
            thought="Rain?",
            calls=(
                Call("call00000", "sky", rome),
                Call("call00001", "now", "{}"),
                Call("call00002", "sky", rome),
            ),
        ),
        Message(role="tool", content="12:00", call_id="call00001", name="now"),
        Message(role="tool", content="blue", call_id="call00000", name="sky"),
        Message(role="tool", content="red", call_id="call00002", name="sky"),
        Message(role="tool", content="?", name="sea"),
        Message(role="assistant", content="ok", calls=(Call("abc", "sky", rome),)),
        Message(role="tool", content="", call_id="abc", name="sky"),
    )


def test_options(facts: ModelFacts) -> None:
    """Options are the sampling fields; what a worker cannot change for a request is not read."""
    options = {"temperature": 0.5, "top_k": 7, "seed": 3, "repeat_penalty": 1.1, "num_ctx": 99,
               "num_predict": 12, "stop": ["a", "b"], "num_gpu": 1}  # fmt: skip
    found = talk(facts, options=options)
    sampling = found.params.sampling
    assert (sampling.temperature, sampling.top_k, sampling.seed) == (0.5, 7, 3)
    assert sampling.repeat_penalty == 1.1
    assert (found.params.max_tokens, found.params.stop) == (12, ("a", "b"))
    assert talk(facts, options={"num_predict": -1}).params.max_tokens is None
    assert talk(facts).params.max_tokens is None


@pytest.mark.parametrize(
    ("think", "expected"),
    [
        (None, Thinking()),
        (True, Thinking(is_on=True)),
        (False, Thinking(is_on=False)),
        ("low", Thinking(effort="low")),
        ("none", Thinking(is_on=False, effort="none")),
    ],
)
def test_think(facts: ModelFacts, think: Any, expected: Thinking) -> None:
    """Whether, or how much."""
    assert talk(facts, think=think).thinking == expected


def test_tools_and_logprobs(facts: ModelFacts) -> None:
    found = talk(facts, tools=[SKY], logprobs=True, top_logprobs=3, keep_alive="5m")
    assert found.tools == (Tool(name="sky", parameters={"type": "object"}),)
    assert found.params.logprobs == 3
    assert talk(facts, top_logprobs=3).params.logprobs is None


def test_format(facts: ModelFacts) -> None:
    """`json`, a schema, or nothing."""
    free, made = talk(facts).params.sampling, talk(facts, format="json").params.sampling
    schema = talk(facts, format={"type": "string"}).params.sampling
    assert len({repr(sampling) for sampling in (free, made, schema)}) == 3
    assert talk(facts, format="").params.sampling == free


def test_a_prompt(facts: ModelFacts) -> None:
    """A prompt is a question, or a text to continue."""
    for system in ("be kind", [{"type": "text", "text": "be kind"}]):
        body = msgspec.convert({"prompt": "hello", "system": system}, GenerateRequest)
        assert question_of(body, facts, UNBOUNDED).messages == (
            Message(role="system", content="be kind"),
            Message(role="user", content="hello"),
        )
    nothings: tuple[Any, ...] = (None, "", [])
    for nothing in nothings:
        body = msgspec.convert({"prompt": "hello", "system": nothing}, GenerateRequest)
        assert question_of(body, facts, UNBOUNDED).messages == (
            Message(role="user", content="hello"),
        )
    (prompt,) = continuation_of(GenerateRequest(prompt="hello"), facts, UNBOUNDED).prompts
    assert prompt.text == "hello"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"messages": [{"role": "user", "images": ["x"]}]}, r"messages\[0\]\.images\[0\] is of"),
    ({"format": "xml"}, "format must be"),
    ({"format": {"$ref": "#/no"}}, "no"),
    ({"options": {"temperature": 101}}, "temperature must be"),
    ({"logprobs": True, "top_logprobs": 101}, "top_logprobs must be"),
]


@pytest.mark.parametrize(("fields", "words"), BAD)
def test_refused(facts: ModelFacts, fields: dict[str, Any], words: str) -> None:
    """What cannot be read is refused with its place."""
    with pytest.raises(RequestError, match=words):
        talk(facts, **fields)


def test_no_prompt_has_these(facts: ModelFacts) -> None:
    """What another server has stored, and pictures without a template or a model that sees."""
    for read, fields in (
        (check_generate, {"context": [1]}),
        (partial(continuation_of, facts=facts, budget=UNBOUNDED), {"images": ["x"]}),
        (partial(question_of, facts=facts, budget=UNBOUNDED), {"images": ["x"]}),
    ):
        with pytest.raises(RequestError) as caught:
            read(msgspec.convert({"prompt": "x", **fields}, GenerateRequest))
        assert [caught.value.param] == list(fields)


def test_fields_beside_options(facts: ModelFacts) -> None:
    """What options do not say counts beside them; both are checked."""
    found = talk(facts, options={"top_k": 3}, temperature=0.5, top_k=7, seed=1)
    assert (
        found.params.sampling.temperature,
        found.params.sampling.top_k,
        found.params.sampling.seed,
    ) == (0.5, 3, 1)
    with pytest.raises(RequestError, match="temperature must be"):
        talk(facts, options={"temperature": 1}, temperature=101)


def test_roles_of_others(facts: ModelFacts) -> None:
    """A developer's message and an older name of a tool's result are read."""
    said = [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]
    call: dict[str, Any] = {
        "role": "assistant",
        "tool_calls": [{"function": {"name": "f", "arguments": {}}}],
    }
    result = {"role": "function", "name": "f", "content": "c"}
    found = talk(facts, messages=[*said, call, result]).messages
    assert [message.role for message in found] == ["developer", "user", "assistant", "tool"]
    assert found[3].call_id == found[2].calls[0].id
