"""Files and batches over HTTP, by OpenAI's client and by programs that are wrong."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.support import http
from tests.support.programs.processes import PATIENCE_S, Server, serving, until

KEYS = "ann-k name=ann weight=2 rpm=3 admin\nplain-k\nother-k\nfiles-k\nbob-k name=bob\n"
URL = "/v1/completions"


@pytest.fixture(scope="module")
def server(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A worker with a folder for batches, and keys."""
    folder = tmp_path_factory.mktemp("batches")
    (folder / "keys").write_text(KEYS)
    options = ("--api-key-file", folder / "keys", "--batch-file", "1", "--batch-files", "9")
    with serving("--model", tiny, "--state-dir", folder / "state", *options) as started:
        yield started


def client_of(server: Server, key: str = "ann-k") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def body(number: int, **more: Any) -> dict[str, Any]:
    return {"prompt": f"One {number}", "max_tokens": 5, "temperature": 0, **more}


def lines(*bodies: dict[str, Any], url: str = URL) -> bytes:
    """Of an input."""
    return b"".join(
        json.dumps({"custom_id": f"c{n}", "method": "POST", "url": url, "body": each}).encode()
        + b"\n"
        for n, each in enumerate(bodies)
    )


def created(client: openai.OpenAI, data: bytes, endpoint: Any = URL, **more: Any) -> Any:
    file = client.files.create(file=("in.jsonl", data), purpose="batch")
    return client.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", **more
    )


def ended(client: openai.OpenAI, batch: Any) -> Any:
    """It, once it is over."""
    found: list[Any] = [batch]

    def is_over() -> bool:
        found[0] = client.batches.retrieve(batch.id)
        return found[0].status in ("completed", "failed", "expired", "cancelled")

    until(is_over)
    return found[0]


def answers(client: openai.OpenAI, file_id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in client.files.content(file_id).text.splitlines()]


def test_as_openai_shows_it(server: Server) -> None:
    """Upload, create, poll, read: the answers are those of the route, in the input's order; lines
    are no requests of a minute, but used."""
    client = client_of(server)
    batch = created(client, lines(*map(body, range(12))), metadata={"night": "1"})
    assert (batch.object, batch.status, batch.metadata) == ("batch", "validating", {"night": "1"})
    batch = ended(client, batch)
    assert (batch.status, batch.error_file_id, batch.errors) == ("completed", None, None)
    assert batch.request_counts.model_dump() == {"total": 12, "completed": 12, "failed": 0}
    assert batch.created_at <= batch.in_progress_at <= batch.completed_at < batch.expires_at
    found = answers(client, batch.output_file_id)
    assert [each["custom_id"] for each in found] == [f"c{n}" for n in range(12)]
    for number in (0, 11):
        plain = {"authorization": "Bearer plain-k"}
        asked = http.post(server.url + URL, json=body(number), headers=plain).json()
        told = found[number]["response"]
        assert told["body"]["choices"] == asked["choices"]
        assert told["status_code"] == 200
    key = {"authorization": "Bearer ann-k"}
    used = http.get(server.url + "/v1/usage", headers=key).json()["data"]["ann"]
    assert used["requests"] >= 12
    shown = http.get(server.url + "/metrics", headers=key).text
    assert re.search(r'worker_batch_lines_answered_total{.*outcome="completed".*} 12.0', shown)
    assert re.search(r'worker_batch_lines{.*state="waiting".*} 0.0', shown)


@pytest.mark.parametrize(
    ("url", "asked", "field"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}, "choices"),
        ("/v1/responses", {"input": "Hi", "max_output_tokens": 16}, "output"),
    ],
)
def test_other_routes(server: Server, url: str, asked: dict[str, Any], field: str) -> None:
    """A line may be for any of the endpoints; one that the route refuses is in the error file."""
    client = client_of(server, "plain-k")
    batch = ended(client, created(client, lines({**asked, "max_tokens": 4}, {}, url=url), url))
    assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == (
        "completed", 1, 1,
    )  # fmt: skip
    (answer,) = answers(client, batch.output_file_id)
    assert answer["response"]["body"][field]
    (refused,) = answers(client, batch.error_file_id)
    told = refused["response"]
    assert (refused["custom_id"], told["status_code"]) == ("c1", 400)
    assert told["body"]["request_id"] == told["request_id"]


def test_lines_are_of_their_key(server: Server) -> None:
    """What lines leave is of the batch's key: their prompts are told to no other, and their
    responses are there for that key alone."""
    asked = {"max_tokens": 2, "return_cache_trace": True}
    begun = "Lines of several keys begin with these words, then come"
    for key, end, hears in (
        ("plain-k", "secrets", False),
        ("other-k", "questions", False),
        ("plain-k", "more of them", True),
    ):
        client = client_of(server, key)
        batch = ended(client, created(client, lines({"prompt": f"{begun} {end}", **asked})))
        (answer,) = answers(client, batch.output_file_id)
        told = json.dumps(answer["response"]["body"]["cache_trace"])
        assert ("secrets" in told) == hears
    url = "/v1/responses"
    client = client_of(server, "plain-k")
    data = lines({"input": "Hi", "max_output_tokens": 16}, url=url)
    batch = ended(client, created(client, data, url))
    (answer,) = answers(client, batch.output_file_id)
    place = f"{server.url}{url}/{answer['response']['body']['id']}"
    for key, status in (("plain-k", 200), ("other-k", 404), ("ann-k", 404)):
        assert http.get(place, headers={"authorization": f"Bearer {key}"}).status_code == status


def test_files(server: Server) -> None:
    """They are listed in pages, read as they were sent, and deleted."""
    client = client_of(server, "files-k")
    ids = [
        client.files.create(file=(f"{n}.jsonl", b"%d\n" % n), purpose="batch").id for n in range(3)
    ]
    first = client.files.list(limit=2, order="asc")
    assert [each.id for each in first.data] == ids[:2]
    assert [each.id for each in client.files.list(limit=2, order="asc")] == ids
    assert [each.id for each in client.files.list(purpose="batch")] == ids[::-1]
    assert client.files.list(purpose="batch_output").data == []
    assert client.files.content(ids[1]).content == b"1\n"
    assert client.files.retrieve(ids[1]).filename == "1.jsonl"
    assert client.files.delete(ids[1]).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(ids[1])
    extra: Any = {"anchor": "created_at", "seconds": 3600}
    timed = client.files.create(file=("a", b"1"), purpose="batch", expires_after=extra)
    assert timed.expires_at == timed.created_at + 3600


def test_files_of_a_key_are_bounded(server: Server) -> None:
    """Beyond them an upload is refused, until one is deleted."""
    client = client_of(server, "bob-k")
    ids = [client.files.create(file=("a", b"1"), purpose="batch").id for _ in range(9)]
    with pytest.raises(openai.BadRequestError, match="Delete some"):
        client.files.create(file=("a", b"1"), purpose="batch")
    client.files.delete(ids[0])
    client.files.create(file=("a", b"1"), purpose="batch")


def test_another_key(server: Server) -> None:
    """A file or batch of another key is not there."""
    client, other = client_of(server, "plain-k"), client_of(server, "other-k")
    batch = created(client, lines(body(1)))
    for ask in (
        lambda: other.files.retrieve(batch.input_file_id),
        lambda: other.files.content(batch.input_file_id),
        lambda: other.batches.retrieve(batch.id),
        lambda: other.batches.cancel(batch.id),
        lambda: other.batches.create(
            input_file_id=batch.input_file_id, endpoint=URL, completion_window="24h"
        ),
    ):
        with pytest.raises(openai.NotFoundError):
            ask()
    assert batch.id not in [each.id for each in other.batches.list()]
    assert batch.id in [each.id for each in client.batches.list(limit=1)]
    ended(client, batch)


def test_a_wrong_input(server: Server) -> None:
    """The batch fails, and tells the lines."""
    client = client_of(server, "plain-k")
    batch = ended(client, created(client, lines(body(1)) + b"{\n" + lines(body(2))))
    assert batch.status == "failed"
    assert [(each.code, each.line) for each in batch.errors.data] == [
        ("invalid_json_line", 2), ("duplicate_custom_id", 3),
    ]  # fmt: skip
    assert batch.request_counts.total == 0


def post(server: Server, path: str, **sent: Any) -> httpx.Response:
    return http.post(server.url + path, headers={"authorization": "Bearer plain-k"}, **sent)


@pytest.mark.parametrize(
    ("fields", "data", "status", "param"),
    [
        ({"purpose": "batch"}, b"x" * (1 << 20) + b"x", 413, None),
        ({"purpose": "fine-tune"}, b"x", 400, "purpose"),
        ({}, b"x", 400, "purpose"),
        ({"purpose": "batch"}, None, 400, "file"),
        ({"purpose": "batch", "expires_after[seconds]": "1"}, b"x", 400, "expires_after"),
    ],
)
def test_wrong_uploads(
    server: Server, fields: dict[str, str], data: bytes | None, status: int, param: str | None
) -> None:
    """What is wrong is told, and nothing of it stays."""
    files = {"other": (None, "1")} if data is None else {"file": ("in", data)}
    answer = post(server, "/v1/files", data=fields, files=files)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("sent", [{"json": {"a": 1}}, {"content": b"x"}])
def test_no_form(server: Server, sent: dict[str, Any]) -> None:
    """A body that is no form is refused."""
    assert post(server, "/v1/files", **sent).status_code == 400


def test_a_part_in_no_encoding(server: Server) -> None:
    """What is wrong is a sentence, not a program's words."""
    kind = {"authorization": "Bearer plain-k", "content-type": "multipart/form-data; boundary=X"}
    part = (
        b'--X\r\nContent-Disposition: form-data; name="file"; filename="\xff"\r\n\r\n1\r\n--X--\r\n'
    )
    answer = http.post(server.url + "/v1/files", headers=kind, content=part)
    told = "The body is not valid multipart/form-data: Segment header failed to decode."
    assert answer.json()["error"]["message"] == told


@pytest.mark.parametrize(
    ("wrong", "status", "param"),
    [
        ({"endpoint": "/v1/rerank"}, 400, "endpoint"),
        ({"completion_window": "soon"}, 400, "completion_window"),
        ({"metadata": {"a": "b" * 600}}, 400, "metadata"),
        ({"output_expires_after": {"anchor": "now", "seconds": 4000}}, 400, "output_expires_after"),
        ({"input_file_id": "file-none"}, 404, "input_file_id"),
        ({"input_file_id": "../../state.db"}, 404, "input_file_id"),
    ],
)
def test_wrong_batches(server: Server, wrong: dict[str, Any], status: int, param: str) -> None:
    """The field is named."""
    answer = post(server, "/v1/batches", json={"input_file_id": "f", "endpoint": URL, **wrong})
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


def test_cancelling(server: Server) -> None:
    """It ends soon, its file can be deleted then and not before, and again it is no error."""
    client = client_of(server, "plain-k")
    many = [body(n, max_tokens=60, ignore_eos=True) for n in range(400)]
    batch = created(client, lines(*many))
    with pytest.raises(openai.ConflictError, match="still reads"):
        client.files.delete(batch.input_file_id)
    assert client.batches.cancel(batch.id).status == "cancelling"
    batch = ended(client, batch)
    assert (batch.status, client.batches.cancel(batch.id).status) == ("cancelled", "cancelled")
    assert batch.request_counts.completed < 400
    assert client.files.delete(batch.input_file_id).deleted


def test_a_stop_in_the_midst(tiny: Path, tmp_path: Path) -> None:
    """SIGTERM does not wait for the lines, and the next worker goes on; a second one beside it has
    exit code 2."""
    options = ("--model", tiny, "--state-dir", tmp_path)
    with serving(*options, "--drain-timeout", "600") as server:
        client = client_of(server)
        batch = created(client, lines(*(body(n, max_tokens=40) for n in range(300))))

        def has_begun() -> bool:
            counts = client.batches.retrieve(batch.id).request_counts
            return counts is not None and counts.completed > 0

        until(has_begun)
        with pytest.raises(AssertionError, match="Another worker uses --state-dir"):
            Server("--model", str(tiny), "--state-dir", str(tmp_path))
        server.process.terminate()
        assert server.wait(PATIENCE_S) == 0
    with serving(*options) as server:
        client = client_of(server)
        batch = ended(client, batch)
        assert batch.request_counts.completed == batch.request_counts.total == 300
        found = answers(client, batch.output_file_id)
        assert [each["custom_id"] for each in found] == [f"c{n}" for n in range(300)]


def test_a_kill_in_the_midst(tiny: Path, tmp_path: Path) -> None:
    """The next worker goes on, behind the cells on the disk of what its lines have in common."""
    options = (
        "--model",
        tiny,
        "--state-dir",
        tmp_path / "state",
        "--cache-dir",
        tmp_path / "cells",
    )
    bodies = [body(n, prompt="One of them " * 60 + str(n), max_tokens=60) for n in range(60)]
    with serving(*options, step_seconds=0.002) as server:
        client = client_of(server)
        batch = created(client, lines(*bodies))
        until(lambda: bool(list((tmp_path / "cells").rglob("*.rows"))))
        server.process.kill()
        server.wait()
    with serving(*options) as server:
        client = client_of(server)
        batch = ended(client, batch)
        assert batch.request_counts.completed == 60
        first = server.wait_for("request")
        assert first["cached_tokens"] > 300
        counts = http.get(server.url + "/metrics").text
        assert re.search(r'worker_prefix_hits_total\{.*source="disk"\} [1-9]', counts)


def test_a_lost_folder(tiny: Path, tmp_path: Path) -> None:
    """An upload says what is wrong with it, and nothing is sent of a file that is gone."""
    with serving("--model", tiny, "--state-dir", tmp_path) as server:
        files = client_of(server).files
        lost = files.create(file=("a", b"1"), purpose="batch").id
        shutil.rmtree(tmp_path / "files")
        with pytest.raises(openai.NotFoundError, match="was removed"):
            files.content(lost)
        with pytest.raises(openai.InternalServerError, match="No such file") as raised:
            files.create(file=("a", b"1"), purpose="batch")
        assert raised.value.status_code == 503


def test_a_model_that_sleeps(tiny: Path, tmp_path: Path) -> None:
    """A batch wakes it, and it sleeps again once the batch is over, and not before."""
    options = ("--state-dir", tmp_path, "--sleep-idle-seconds", "0.05")
    with serving("--model", tiny, *options) as server:
        server.wait_for("the model sleeps")
        client = client_of(server)
        batch = created(client, lines(*(body(n, max_tokens=40) for n in range(60))))
        assert ended(client, batch).request_counts.completed == 60
        server.wait_for("the model is back")
        server.wait_for("the model sleeps")
        events = [json.loads(each)["event"] for each in server.lines]
        last = len(events) - events[::-1].index("request")
        assert events.count("request") == 60
        assert events[:last].count("the model sleeps") == 1


def test_without_a_folder(server: Server, tiny: Path) -> None:
    """Each path names the option."""
    with serving("--model", tiny) as plain:
        for path in ("/v1/files", "/v1/files/f", "/v1/files/f/content", "/v1/batches"):
            answer = http.get(plain.url + path)
            assert answer.status_code == 501
            assert "--state-dir" in answer.json()["error"]["message"]
        asked = {"input_file_id": "f", "endpoint": URL}
        assert http.post(plain.url + "/v1/batches", json=asked).status_code == 501
