"""Whatever clients of each API send as history is said to the model: nothing vanishes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.support.cases import for_each
from tests.support.facts import facts_with
from worker.api.anthropic.chat_input import chat_input_of as anthropic_talk
from worker.api.anthropic.schemas import MessagesRequest
from worker.api.intake.chat.chat_input import ChatInput
from worker.api.intake.chat.chat_request import ChatRequest
from worker.api.intake.chat.chat_request import chat_input_of as chat_talk
from worker.api.ollama.chat_input import chat_input_of as ollama_talk
from worker.api.ollama.schemas import OllamaChatRequest
from worker.api.responses.chat_input import chat_input_of as response_talk
from worker.api.responses.schemas import ResponseRequest
from worker.budget import UNBOUNDED
from worker.chat.message import Call, Message
from worker.errors import RequestError

Body = dict[str, Any]
FACTS = facts_with()
USER: Body = {"role": "user", "content": "hello"}


def read(body: Body, shape: Any) -> Any:
    """As it comes over the wire."""
    return msgspec.json.decode(msgspec.json.encode(body), type=shape)


def chat(*messages: Any, **more: Any) -> ChatInput:
    body = read({"messages": [*messages, USER], **more}, ChatRequest)
    return chat_talk(body, FACTS, UNBOUNDED)


def responses(*items: Any, **more: Any) -> ChatInput:
    body = read({"input": [*items, USER], **more}, ResponseRequest)
    return response_talk(body, FACTS, UNBOUNDED)


def anthropic(*messages: Any, **more: Any) -> ChatInput:
    body = read({"messages": [*messages, USER], "max_tokens": 5, **more}, MessagesRequest)
    return anthropic_talk(body, FACTS, UNBOUNDED)


def ollama(*messages: Any, **more: Any) -> ChatInput:
    return ollama_talk(
        read({"messages": [*messages, USER], **more}, OllamaChatRequest), FACTS, UNBOUNDED
    )


def said(talk: ChatInput) -> str:
    """All that the model is told of the history."""
    texts: list[str | None] = []
    for message in talk.messages:
        texts += [message.content, message.thought, message.name]
        texts += [text for call in message.calls for text in (call.name, call.arguments)]
    return "\n".join(filter(None, texts))


APIS: dict[str, Callable[..., ChatInput]] = {
    "chat": chat, "responses": responses, "anthropic": anthropic, "ollama": ollama,
}  # fmt: skip
LONG = "zqfirst " + "word " * 500 + "zqlast"
CALL: Body = {"type": "function_call", "call_id": "1", "name": "sky", "arguments": "{}"}
ITEMS: list[Body] = [
    {"type": "apply_patch_call", "call_id": "1", "operation": {"path": "zqpath", "diff": LONG}},
    {"type": "apply_patch_call", "call_id": "1", "operation": {"path": "zqpath"}, "why": "zqwhy"},
    {"type": "mcp_call", "id": "m", "server_label": "zqserver", "name": "zqname",
     "arguments": '{"a": "zqargument"}', "output": "zqoutput"},
    {"type": "mcp_call", "id": "m", "name": "zqname", "arguments": "{}", "output": None,
     "error": "zqerror", "status": "failed"},
    {"type": "mcp_call", "id": "m", "name": "zqname", "arguments": "{}",
     "error": {"type": "http_error", "message": "zqerror"}},
    {"type": "never_seen", "text": "zqtext", "more": {"deep": ["zqdeep"]}},
    {"type": "never_seen", "role": "user", "body": "zqbody"},
    {"type": "tool_search_output", "call_id": "1", "tools": [{"name": "zqtool"}]},
    {"type": "function_call_output", "call_id": "1", "content": "zqcontent"},
    {"type": "function_call_output", "call_id": "1", "output": "zqoutput", "more": "zqmore"},
    {"type": "shell_call_output", "call_id": "1",
     "output": [{"stdout": LONG, "stderr": "zqstderr", "outcome": {"type": "exit"}}]},
    {"type": "mcp_approval_response", "approve": True, "reason": "zqreason"},
    {"type": "mcp_approval_request", "id": "q", "name": "zqname", "arguments": '{"a": "zqb"}'},
    {"type": "mcp_list_tools", "server_label": "zqlabel",
     "tools": [{"name": "zqtool", "description": LONG}]},
    {"type": "image_generation_call", "id": "i", "result": "aGVsbG8=", "revised_prompt": "zqrain"},
    {"type": "code_interpreter_call", "id": "i", "code": LONG, "outputs": [{"logs": "zqlogs"}]},
    {"type": "file_search_call", "id": "i", "queries": ["zqquery"], "results": [{"text": LONG}]},
    {"type": "web_search_call", "id": "i", "action": {"type": "search", "query": "zqquery"}},
    {"type": "computer_call", "call_id": "1", "action": {"type": "type", "text": "zqtyped"}},
    {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "zqname",
     "arguments": '{"a": "zqargument"}'}}]},
    {"role": "assistant", "content": "zqa", "reasoning_content": "zqthought", "refusal": "zqno"},
    {"role": "tool", "tool_call_id": "1", "content": "zqresult"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "zqtext"},
                                      {"type": "refusal", "refusal": "zqrefusal"}]},
]  # fmt: skip


def marks(value: Any) -> set[str]:
    """The words that must arrive."""
    words = msgspec.json.encode(value).decode().replace('"', " ").replace("\\", " ").split()
    return {word for word in words if word.startswith("zq")}


@for_each("item", ITEMS)
def test_items(item: Body) -> None:
    """Every word of an item of any type, however long."""
    text = said(responses(USER, CALL, item))
    assert {word for word in marks(item) if word not in text} == set()


def test_a_call_and_its_output_in_one_item() -> None:
    """Both are told as a call and its result."""
    item = {"type": "mcp_call", "id": "m", "name": "sky", "arguments": '{"a":1}', "output": "blue"}
    _, called, result, _ = responses(USER, item).messages
    assert called.calls == (Call("m", "sky", '{"a":1}'),)
    assert result == Message(role="tool", call_id="m", name="sky", content="blue")


SERVED: Body = {"type": "server_tool_use", "id": "s", "name": "bash", "input": {"command": LONG}}
PARTS: list[Body] = [
    SERVED,
    {"type": "bash_code_execution_tool_result", "tool_use_id": "s",
     "content": {"type": "bash_code_execution_result", "stdout": LONG, "return_code": 0}},
    {"type": "mcp_tool_result", "is_error": True, "content": [{"type": "text", "text": "zqtext"}]},
    {"type": "web_search_tool_result", "content": [
        {"type": "web_search_result", "title": "zqtitle", "url": "https://zqurl"}]},
    {"type": "json", "json": {"deep": LONG}},
    {"type": "json", "data": {"deep": "zqdeep"}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "transcript": "zqheard"}},
    {"type": "audio", "transcript": "zqheard"},
    {"type": "document", "title": "zqtitle", "context": "zqcontext",
     "source": {"type": "text", "media_type": "text/plain", "data": "zqdata"}},
    {"type": "document", "title": "zqtitle", "context": "zqcontext",
     "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}},
    {"type": "document", "source": {"type": "content", "content": [
        {"type": "text", "text": "zqtext"}]}},
    {"type": "search_result", "title": "zqtitle", "source": "zqsource", "content": [
        {"type": "text", "text": "zqtext"}]},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "alt": "zqalt"}},
    {"type": "text", "text": "zqtext", "refusal": "zqrefusal"},
    {"type": "text", "text": {"value": "zqvalue", "annotations": []}},
    {"type": "weird", "text": "zqtext", "content": "zqcontent", "other": {"deep": "zqdeep"}},
    {"type": "weird", "text": "zqtext", "content": {"data": "zqdata"}},
    {"stdout": "zqstdout", "ok": False},
]  # fmt: skip


@for_each("api", APIS)
@for_each("role", ["user", "assistant"])
@for_each("part", PARTS)
def test_parts(api: str, role: str, part: Body) -> None:
    """Every word of a part of any type, however long, beside its text."""
    message = {"role": role, "content": [{"type": "text", "text": "zqbeside"}, part]}
    text = said(APIS[api](USER, message, {"role": "assistant", "content": "a"}))
    assert {word for word in marks(message) if word not in text} == set()


@for_each("part", PARTS)
def test_parts_of_results(part: Body) -> None:
    """The same in what a tool returned, in each API."""
    content = [{"type": "text", "text": "zqbeside"}, part]
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "sky"}]}
    result = {"type": "tool_result", "tool_use_id": "1", "content": content}
    called = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "sky"}}]}
    told = {"role": "tool", "tool_call_id": "1", "content": content}
    output = {"type": "function_call_output", "call_id": "1", "output": content}
    for talk in (
        chat(USER, called, told),
        ollama(USER, called, told),
        responses(USER, CALL, output),
        anthropic(USER, use, {"role": "user", "content": [result]}),
    ):
        text = said(talk)
        assert {word for word in marks(content) if word not in text} == set()


def test_bytes_are_counted() -> None:
    """What is left out is told: how much it was."""
    part = {"type": "file", "file": {"filename": "a.pdf", "file_data": "A" * 5000}}
    text = said(chat({"role": "user", "content": [part]}))
    assert "a.pdf" in text
    assert "(5000 characters of data are left out)" in text
    assert "AAAA" not in text


@for_each(
    "marked",
    [{"is_error": True}, {"status": "failed"}, {"status": "incomplete"}, {"error": "zqwhy"},
     {"error": {"message": "zqwhy"}}, {"is_error": "true"}],
)  # fmt: skip
@for_each("api", APIS)
def test_a_result_that_says_it_failed(api: str, marked: Body) -> None:
    """Each API's results are errors then, and what went wrong is told."""
    called = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "sky"}}]}
    given: dict[str, tuple[Any, ...]] = {
        "chat": (called, {"role": "tool", "tool_call_id": "1", "content": "zqout", **marked}),
        "ollama": (called, {"role": "tool", "tool_call_id": "1", "content": "zqout", **marked}),
        "responses": (
            CALL, {"type": "function_call_output", "call_id": "1", "output": "zqout", **marked}),
        "anthropic": (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "sky"}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": "zqout", **marked}]}),
    }  # fmt: skip
    talk = APIS[api](USER, *given[api])
    (result,) = (message for message in talk.messages if message.role == "tool")
    assert result.is_error
    assert {word for word in ("zqout", *marks(marked)) if word not in said(talk)} == set()


@pytest.mark.parametrize("fine", [{"is_error": False}, {"is_error": "false"}, {"error": None},
                                  {"status": "completed"}, {"error": ""}], ids=str)  # fmt: skip
def test_a_result_that_did_not_fail(fine: Body) -> None:
    """A word for no is none."""
    message = {"role": "tool", "content": "blue", **fine}
    assert not chat(USER, message).messages[1].is_error


@pytest.mark.parametrize("api", ["chat", "ollama", "responses"])
def test_a_system_text_beside_the_messages(api: str) -> None:
    """It stands in front of them."""
    blocks = [{"type": "text", "text": "Be kind."}]
    for given in ("Be kind.", blocks):
        first = APIS[api](system=given).messages[0]
        assert first == Message(role="system", content="Be kind.")
    assert APIS[api](system="").messages[0].role == "user"


CALLS: list[tuple[Any, tuple[Call, ...]]] = [
    (None, ()), ("", ()), ({}, ()), ([], ()), ([None], ()), ([{}], ()),
    ([{"id": 5, "function": {"name": 7, "arguments": "{}"}}], (Call("5", "7", "{}"),)),
    ([{"id": "1", "function": {"name": "sky", "args": {"a": 1}}}], (Call("1", "sky", '{"a":1}'),)),
    ([{"id": "1", "name": "sky", "args": {"a": 1}}], (Call("1", "sky", '{"a":1}'),)),
    ([{"id": "1", "function": {"name": "sky", "parameters": {"a": 1}}}],
     (Call("1", "sky", '{"a":1}'),)),
    ([{"id": "1", "custom": {"name": "sky", "input": "x"}}], (Call("1", "sky", "x"),)),
    ({"id": "1", "function": {"name": "sky"}}, (Call("1", "sky", "{}"),)),
    ([{"id": "1", "function": "sky", "arguments": "{}"}], (Call("1", "sky", "{}"),)),
    ([{"id": ["1"], "function": {"name": "sky"}}], (Call('["1"]', "sky", "{}"),)),
]  # fmt: skip


@for_each(("given", "calls"), CALLS)
@for_each("api", ["chat", "ollama", "responses"])
def test_calls_of_any_form(api: str, given: Any, calls: tuple[Call, ...]) -> None:
    """Nothing in all its forms is no call; numbers are texts; values stand under any name."""
    message = {"role": "assistant", "content": "I look.", "tool_calls": given}
    assert APIS[api](USER, message).messages[1].calls == calls


@pytest.mark.parametrize("api", ["chat", "ollama", "responses"])
def test_calls_that_cannot_be_read(api: str) -> None:
    """They are a note."""
    talk = APIS[api](USER, {"role": "assistant", "tool_calls": ["zqcall", ["zqlist"]]})
    assert {word for word in ("zqcall", "zqlist") if word not in said(talk)} == set()


ROLES: list[tuple[Any, str]] = [
    ("ai", "assistant"), ("model", "assistant"), ("Assistant ", "assistant"), ("human", "user"),
    ("", "user"), (None, "user"), ("critic", "critic"),
]  # fmt: skip


@pytest.mark.parametrize(("role", "ours"), ROLES)
@pytest.mark.parametrize("api", APIS)
def test_roles_of_other_names(api: str, role: Any, ours: str) -> None:
    """Who says none is the user, and a message that is null is none."""
    answer = {"role": "assistant", "content": "b"}
    messages = APIS[api](USER, answer, None, {"role": role, "content": "zqsaid"}, answer).messages
    (found,) = (each for each in messages if "zqsaid" in (each.content or ""))
    assert found.role == ours


@pytest.mark.parametrize("api", ["chat", "ollama"])
def test_messages_that_say_no_role(api: str) -> None:
    """They are told by what they hold."""
    calls = [{"id": "1", "function": {"name": "sky"}}]
    messages = APIS[api](USER, {"tool_calls": calls}, {"tool_call_id": "1", "content": "blue"})
    assert [each.role for each in messages.messages] == ["user", "assistant", "tool", "user"]


ADDRESS = "https://example.org/zqplace?size=large"
DATA = "data:image/png;base64,AAAA"
SHOWN: list[Body] = [
    {"type": "image_url", "image_url": {"url": "ADDRESS"}},
    {"type": "image_url", "image_url": "ADDRESS"},
    {"type": "input_image", "image_url": "ADDRESS"},
    {"type": "image", "source": {"type": "url", "url": "ADDRESS"}},
    {"type": "image", "image": "ADDRESS"},
    {"type": "video_url", "video_url": {"url": "ADDRESS"}},
    {"type": "text", "text": "a", "citations": [
        {"type": "web_search_result_location", "url": "ADDRESS", "title": "zqtitle"}]},
    {"type": "output_text", "text": "a", "annotations": [
        {"type": "url_citation", "url": "ADDRESS", "title": "zqtitle"}]},
]  # fmt: skip


@pytest.mark.parametrize("part", SHOWN, ids=str)
@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize("api", APIS)
def test_addresses_of_what_was_shown_and_cited(api: str, role: str, part: Body) -> None:
    """They are told in a note; data in their place is not."""
    for address in (ADDRESS, DATA):
        text = json.dumps(part).replace("ADDRESS", address)
        message = {"role": role, "content": [json.loads(text)]}
        told = said(APIS[api](USER, message, {"role": "assistant", "content": "a"}))
        assert told.count(address) == (address == ADDRESS)
        assert ("zqtitle" in told) == ("zqtitle" in text and address == ADDRESS)


@pytest.mark.parametrize("api", ["chat", "ollama"])
def test_addresses_beside_the_content(api: str) -> None:
    """Of citations, in the forms of two servers, and of Ollama's pictures."""
    source = {"type": "url_citation", "url_citation": {"url": ADDRESS, "title": "zqtitle"}}
    answer = {"role": "assistant", "content": "a", "annotations": [source]}
    other = {"role": "assistant", "content": "a", "citations": [ADDRESS, ADDRESS]}
    assert f"[source: zqtitle {ADDRESS}]" in said(APIS[api](USER, answer))
    assert said(APIS[api](USER, other)).count(ADDRESS) == 1
    shown = {"role": "user", "content": "a", "images": [ADDRESS, "iVBORw0KGgo="]}
    told = said(APIS[api](shown, {"role": "assistant", "content": "b"}))
    assert f"a\n[image: {ADDRESS}]\n[image]\n" in told


def test_items_that_say_no_role() -> None:
    """They are the user's; nulls are none."""
    body = read({"input": [None, {"content": "a"}, None, "b", {}]}, ResponseRequest)
    found = response_talk(body, FACTS, UNBOUNDED).messages
    assert found == (Message(role="user", content="a"), Message(role="user", content="b"))
    with pytest.raises(RequestError, match=r"input\[1\].role"):
        response_talk(read({"input": [None, {"role": 5}]}, ResponseRequest), FACTS, UNBOUNDED)


@pytest.mark.parametrize("api", APIS)
def test_no_tool_refuses_a_request(api: str) -> None:
    """What cannot be read is left out with a word; a description is a text."""
    flat = {"type": "function", "name": "sky", "description": 5}
    deep = {"type": "function", "function": {"name": "sky", "description": 5}}
    tool = deep if api in ("chat", "ollama") else flat
    talk = APIS[api](tools=["f", 5, ["x"], None, tool, {"type": 7, "name": "x"}])
    assert [(each.name, each.description) for each in talk.tools] == [("sky", "5")]
    assert talk.left_out == (
        "tools[0] is no object and is left out.", "tools[1] is no object and is left out.",
        "tools[2] is no object and is left out.", "Tools of the type 7 are left out.",
    )  # fmt: skip


def test_a_sound_whose_words_are_known_is_a_question() -> None:
    """One that is not cannot be answered."""
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "transcript": "Rain?"}}
    for talk in (chat, responses, anthropic, ollama):
        assert "Rain?" in said(talk({"role": "user", "content": [sound]}))
    body = {"messages": [{"role": "user", "content": [sound]}]}
    assert said(chat_talk(read(body, ChatRequest), FACTS, UNBOUNDED)) == "Rain?"


def test_thinking_of_no_type() -> None:
    """It says nothing."""
    assert anthropic(thinking={"type": None}).thinking == anthropic().thinking
