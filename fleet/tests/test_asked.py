"""What of a body chooses the replica."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from gguf_fleet.front import jobs
from gguf_fleet.front.asked import HEAD, head_of, prefix_of, session_of, unpack, zstd


def prefix(**body: Any) -> bytes | None:
    """The key of a body."""
    return prefix_of(head_of(json.dumps(body).encode()))


SYSTEM = {"role": "system", "content": "Be kind."}
HELLO = {"role": "user", "content": "Hello!"}
OTHER = {"role": "user", "content": "Goodbye!"}
TURNS = [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "And now?"}]


@pytest.mark.parametrize(
    ("fields", "own"),
    [("messages", {}), ("messages", {"system": "Be kind."}), ("input", {"instructions": "Be."})],
)
def test_a_conversation_keeps_its_key(fields: str, own: dict[str, str]) -> None:
    """Later turns do not count; another beginning, or other instructions, do."""
    begun = prefix(**own, **{fields: [SYSTEM, HELLO]})
    assert begun is not None
    assert begun == prefix(**own, **{fields: [SYSTEM, HELLO, *TURNS]}, temperature=0)
    assert begun != prefix(**own, **{fields: [SYSTEM, OTHER]})
    assert begun != prefix(**own, **{fields: [HELLO]})
    assert begun != prefix(system="Be brief.", **{fields: [SYSTEM, HELLO]})


@pytest.mark.parametrize("field", ["prompt", "input", "input_prefix", "state"])
def test_a_text_is_known_by_its_head(field: str) -> None:
    """What comes after HEAD characters does not count."""
    text = "a" * HEAD
    assert prefix(**{field: text}) == prefix(**{field: text + "more"})
    assert prefix(**{field: text}) != prefix(**{field: "b" + text})


def test_unpacking_is_bounded() -> None:
    """What is damaged, unfinished, of another coding or too long is nothing."""
    text = b"a" * 1000
    for coding, data in (("gzip", gzip.compress(text)), ("zstd", zstd.compress(text))):
        assert unpack(data, coding, 1000) == text
        assert unpack(data, coding, 999) == b""
        assert unpack(data[:-1], coding, 1000) == b""
        assert unpack(text, coding, 1000) == b""
    assert unpack(text, "identity", 10) == text
    assert unpack(text, "br", 1000) == b""


def test_a_form_is_known_by_its_first_part() -> None:
    """That is the JSON of a request with pictures."""
    body = json.dumps({"model": "m", "state": "a" * HEAD}).encode()
    form = b'--x\r\nContent-Disposition: form-data; name="request"\r\n\r\n' + body + b"\r\n--x--"
    asked = head_of(form, "multipart/form-data; boundary=x")
    assert asked.model == "m"
    assert prefix_of(asked) == prefix_of(head_of(body))


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b'"text"', b"\xff", b'{"messages": []}', b'{"model": 3}', b"{}"]
)
def test_where_there_is_no_prompt_there_is_no_key(body: bytes) -> None:
    """It is the worker's to say what is wrong."""
    assert prefix_of(head_of(body)) is None


def test_odd_prompts_have_keys_too() -> None:
    """Token ids, lists of texts, contents in parts, turns that are none, half a character."""
    bodies: list[dict[str, Any]] = [
        {"prompt": [1, 2, 3]}, {"prompt": ["a", "b"]}, {"messages": [3, None]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
        {"messages": {"a": 1}},
    ]  # fmt: skip
    keys = {prefix(**body) for body in bodies}
    assert None not in keys
    assert len(keys) == len(bodies)
    assert prefix_of(head_of(b'{"prompt": "\\ud800"}')) is None  # it is no JSON


def test_a_session_is_what_the_client_says() -> None:
    """The header counts more than the field; without both there is none."""
    asked = head_of(b'{"prompt_cache_key": "a", "prompt": "Once"}')
    assert session_of(asked, None) == session_of(head_of(b"{}"), "a")
    assert session_of(asked, "b") == session_of(head_of(b"{}"), "b")
    assert session_of(head_of(b'{"prompt_cache_key": 3}'), None) is None


def test_a_job_is_named_after_its_replica() -> None:
    """Where the client gives no name; all other fields stay, and what is no object stays too."""
    body = json.loads(jobs.with_replica(b'{"prompt": "Once", "top_k": 3}', "r1"))
    assert jobs.replica_of(body.pop("job_id")) == "r1"
    assert body == {"prompt": "Once", "top_k": 3}
    for own in (b'{"job_id":"mine"}', b"[]", b"{", b"\xff"):
        assert jobs.with_replica(own, "r1") == own
    assert jobs.read_by("/v1/jobs/r1.abc/stream") == "r1.abc"
    assert jobs.read_by("/v1/inference/mine/stream") == "mine"
    assert jobs.read_by("/v1/jobs") is None
