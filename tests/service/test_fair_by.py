"""Without keys: who shares, by what requests say of their user or by where they come from."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import http
from tests.support.models import ggufs
from tests.support.programs.processes import Server, serving

SAID = [{"role": "user", "content": "Hi"}]
FEW: dict[str, Any] = {"max_tokens": 2, "temperature": 0}
QUESTION = {"type": "predicate", "instructions": "It rains."}
# Routes that compute, what they are sent, and how that names its user.
ROUTES = {
    "completions": ("/v1/completions", {"prompt": "Once", "user": "bob", **FEW}),
    "chat": ("/v1/chat/completions", {"messages": SAID, "user": "bob", **FEW}),
    "responses": ("/v1/responses", {"input": "Hi", "user": "bob", "max_output_tokens": 2}),
    "messages": ("/v1/messages", {"messages": SAID, "metadata": {"user_id": "bob"}, **FEW}),
    "ollama": ("/api/generate", {"prompt": "Hi", "user": "bob", "options": {"num_predict": 2}}),
    "completion": ("/completion", {"prompt": "Once", "user": "bob", "n_predict": 2}),
    "job": ("/v1/jobs", {"prompt": "Once", "user": "bob", **FEW}),
}
HEADED = {
    "header": ("/v1/completions", {"prompt": "Once", "user": "ann", **FEW}),
    "decisions": ("/v1/decisions", {"input": "Hi", "questions": [QUESTION]}),
}


@contextlib.contextmanager
def occupied(server: Server, *, client: httpx.Client, **body: Any) -> Generator[None]:
    """Two streams of somebody's, as many as one may have of four places."""
    asked = {"prompt": "Once", "stream": True, "ignore_eos": True, **body}
    readers: list[Iterator[str]] = []  # one that is dropped closes its answer
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            url = server.url + "/v1/completions"
            answer = stack.enter_context(client.stream("POST", url, json=asked))
            assert answer.status_code == 200
            readers.append(answer.iter_lines())
            next(readers[-1])
        yield


@pytest.fixture(scope="module")
def by_user(tiny: Path) -> Generator[Server]:
    """A worker with two slots and two places to wait, in which bob has two streams."""
    few = ("-np", "2", "--queue-size", "2", "-c", "2048", "--draft", "none")
    with (
        serving("--model", tiny, *few, "--fair-by", "user", step_seconds=0.02) as server,
        occupied(server, client=http.client, user="bob", max_tokens=900),
    ):
        yield server


@pytest.mark.parametrize("route", [*ROUTES, *HEADED])
def test_a_user(by_user: Server, route: str) -> None:
    """Whichever way a request names its user, those of one have half of the places together, and
    another one, or somebody without a name, is served beside them."""
    path, body = (ROUTES | HEADED)[route]
    text, is_headed = json.dumps(body), route in HEADED
    for user, is_refused in (("bob", True), (route, False), ("", False)):
        sent = text.replace('"bob"', f'"{user}"' if user else "null")
        headers = {"content-type": "application/json", **({"x-user": user} if is_headed else {})}
        answer = http.post(by_user.url + path, content=sent, headers=headers)
        assert answer.is_success != is_refused, answer.text
        if is_refused:
            assert answer.status_code == 429
            assert "This client has 2 requests that run or wait already" in answer.text


def test_no_name_of_a_user_is_told(by_user: Server) -> None:
    """Users have no limits, no usage and no metrics, and no line names them."""
    answer = http.post(by_user.url + "/v1/completions", json={**FEW, "prompt": "a", "user": "zoe"})
    assert answer.is_success
    assert not [name for name in answer.headers if "ratelimit" in name]
    assert http.get(by_user.url + "/v1/usage").json()["data"] == {}
    for path in ("/metrics", "/v1/requests", "/slots"):
        told = http.get(by_user.url + path).text
        assert "zoe" not in told
        assert "bob" not in told
    assert not [line for line in by_user.lines if "zoe" in line or "bob" in line]


def test_an_address(tiny: Path) -> None:
    """Requests of one address share as one, whatever they say of users."""
    few = ("-np", "2", "--queue-size", "2", "-c", "2048", "--draft", "none")
    far = httpx.HTTPTransport(local_address="127.0.0.2")
    with (
        serving("--model", tiny, *few, "--fair-by", "connection", step_seconds=0.02) as server,
        httpx.Client(transport=far, timeout=60) as other,
        occupied(server, client=http.client, max_tokens=900),
    ):
        url, asked = server.url + "/v1/completions", {"prompt": "a", "user": "eve", **FEW}
        refused = http.post(url, json=asked, headers={"x-user": "eve"})
        assert refused.status_code == 429
        assert "This client has 2 requests" in refused.text
        assert other.post(url, json=asked).is_success


def test_named_keys_are_not_split(tiny: Path, tmp_path: Path) -> None:
    """A key with a name is one account whatever its users; requests of other keys are split."""
    (tmp_path / "keys").write_text("k-app name=app\nk-plain\n")
    options = ("--queue-size", "2", "-np", "2", "-c", "2048", "--draft", "none")
    keys = ("--api-key-file", tmp_path / "keys", "--fair-by", "user")
    named, plain = ({"authorization": f"Bearer {key}"} for key in ("k-app", "k-plain"))
    with (
        serving("--model", tiny, *options, *keys, step_seconds=0.02) as server,
        httpx.Client(headers=named, timeout=60) as client,
        occupied(server, client=client, user="bob", max_tokens=900),
    ):
        url, asked = server.url + "/v1/completions", {"prompt": "a", "user": "eve", **FEW}
        refused = client.post(url, json=asked)
        assert "app has 2 requests that run or wait already" in refused.text
        assert http.post(url, json={**asked, "user": "bob"}, headers=plain).is_success


async def _share(url: str, most: int, warm: int) -> float:
    """Of the tokens of two users, those of the one that asks one request at a time, beside twelve
    of the other."""
    counts = {"one": 0, "many": 0}

    def total() -> int:
        return sum(counts.values())

    first: dict[str, int] = {}

    async def ask(user: str, number: int) -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            for again in itertools.count():
                asked = {"prompt": f"{number} {again}", "max_tokens": 40, "ignore_eos": True}
                body = {**asked, "user": user, "stream": True, "temperature": 0}
                async with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
                    async for line in answer.aiter_lines():
                        if total() >= most:
                            return
                        counts[user] += line.startswith("data: {")
                        if not first and total() >= warm:
                            first.update(counts)

    await asyncio.gather(ask("one", 0), *(ask("many", number) for number in range(1, 13)))
    return (counts["one"] - first["one"]) / (most - warm)


@pytest.mark.parametrize(("fair_by", "low", "high"), [("user", 0.4, 0.6), ("none", 0.0, 0.25)])
def test_shares(tmp_path: Path, fair_by: str, low: float, high: float) -> None:
    """One stream of a user has as many tokens as twelve of another one; without the option what
    one of thirteen has."""
    model = ggufs.write_llama(tmp_path / "m.gguf", context=256)
    options = ("-np", "4", "-c", "1024", "--draft", "none", "--fair-by", fair_by)
    with serving("--model", model, *options, step_seconds=0.004) as server:
        assert low <= asyncio.run(_share(server.url, 1_000, 200)) <= high
