"""Lines of a batch's input and output."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from worker.batches.line import (
    ENDPOINTS,
    AnsweredLine,
    BatchLine,
    LineProblem,
    LineReader,
    read_answer,
    with_failure,
    with_response,
    write_line,
)

CHAT = "/v1/chat/completions"


def line_of(**changes: Any) -> bytes:
    """A line that is right, but for these fields; None leaves one out."""
    fields: dict[str, Any] = {"custom_id": "a", "method": "POST", "url": CHAT}
    fields |= {"body": {"messages": []}} | changes
    return msgspec.json.encode({k: v for k, v in fields.items() if v is not None}) + b"\n"


@pytest.mark.parametrize("url", ENDPOINTS)
def test_a_line(url: str) -> None:
    """Each endpoint's requests are read; the body stays as it was written."""
    reader = LineReader(url)
    body = b'{"model" : "m", "seed": 1, "input": "\xc3\xa9"}'
    text = b'{"custom_id": "x", "method": "POST", "url": "%s", "body": %s}' % (url.encode(), body)
    assert reader.read(b"\n") is None
    assert reader.read(b" " + text + b"\r\n") == BatchLine(2, "x", url, body)


@pytest.mark.parametrize(
    ("data", "code", "param"),
    [
        (b"no json\n", "invalid_json_line", None),
        (b"[1]\n", "invalid_json_line", None),
        (b'{"custom_id": "a"', "invalid_json_line", None),
        (b'{"custom_id": "\xff"}', "invalid_json_line", None),
        (b"[" * 10_000, "invalid_json_line", None),
        (line_of(custom_id=None), "missing_required_parameter", "custom_id"),
        (line_of(method=None), "missing_required_parameter", "method"),
        (line_of(url=None), "missing_required_parameter", "url"),
        (line_of(body=None), "missing_required_parameter", "body"),
        (line_of(custom_id=3), "invalid_custom_id", "custom_id"),
        (line_of(custom_id=""), "invalid_custom_id", "custom_id"),
        (line_of(custom_id=0).replace(b"0", b"1e999", 1), "invalid_custom_id", "custom_id"),
        (line_of(custom_id="first"), "duplicate_custom_id", "custom_id"),
        (line_of(method="GET"), "invalid_method", "method"),
        (line_of(url="/v1/models"), "invalid_url", "url"),
        (line_of(url=["x"]), "invalid_url", "url"),
        (line_of(url="/v1/completions"), "url_mismatch", "url"),
        (line_of(body=[1]), "invalid_body", "body"),
        (line_of(body={"stream": True}), "streaming_not_supported", "body"),
    ],
)
def test_what_is_wrong(data: bytes, code: str, param: str | None) -> None:
    """A line that cannot be asked has its number, a code and the field; the next one is read."""
    reader = LineReader(CHAT)
    reader.read(line_of(custom_id="first"))
    found = reader.read(data)
    assert isinstance(found, LineProblem)
    assert (found.code, found.param, found.line) == (code, param, 2)
    assert found.message.endswith(".")
    assert isinstance(reader.read(line_of(custom_id="third")), BatchLine)


def test_shared_beginnings_are_neighbors() -> None:
    """In the order of their beginnings come all lines of one prefix, then those of the other,
    whatever fields stand in front."""
    reader, found = LineReader(), list[BatchLine]()
    for number in range(6):
        text = f"{'even' if number % 2 else 'odd'} numbers: {number}"
        body = {"seed": number, "messages": [{"role": "user", "content": text}]}
        line = reader.read(line_of(custom_id=str(number), body=body))
        assert isinstance(line, BatchLine)
        found.append(line)
    assert [line.custom_id for line in sorted(found, key=lambda each: each.beginning)] == [
        "1", "3", "5", "0", "2", "4",
    ]  # fmt: skip


def test_an_answer() -> None:
    """A line of the output has OpenAI's fields, and is read again; a cut one is none."""
    answer = with_response("x", 200, "req-1", b'{"choices": []}')
    data = write_line(answer)
    assert msgspec.json.decode(data) == {
        "id": answer.id,
        "custom_id": "x",
        "response": {"status_code": 200, "request_id": "req-1", "body": {"choices": []}},
        "error": None,
    }
    again = read_answer(data)
    assert isinstance(again, AnsweredLine)
    assert again.is_ok
    assert write_line(again) == data
    assert all(read_answer(data[:end]) is None for end in range(len(data) - 1))


def test_what_is_no_answer() -> None:
    """Neither a failure nor a response that refuses is an answer; a body that is not JSON is told
    as a text."""
    refused = with_response("x", 502, "", b"<html>")
    assert not refused.is_ok
    assert msgspec.json.decode(write_line(refused))["response"]["body"] == "<html>"
    failed = with_failure("x", "connection_lost", "The worker is gone.")
    assert not failed.is_ok
    assert msgspec.json.decode(write_line(failed))["error"]["code"] == "connection_lost"
