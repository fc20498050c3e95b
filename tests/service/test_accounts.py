"""Keys with names: limits, priorities, and what each used."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.support import http
from tests.support.programs.processes import Server, serving

KEYS = """\
ann-k name=ann weight=2 priority=-20 admin
bob-k name=bob rpm=2
cid-k name=cid tpm=50
dan-k name=dan running=1
plain-k
"""
ASKED = {"prompt": "Once", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
SAID = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def shared(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A worker whose keys have names and limits."""
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(KEYS)
    with serving("--model", tiny, "-t", "1", "--api-key-file", file) as server:
        yield server


def post(
    server: Server, key: str, body: object, path: str = "/v1/completions", **headers: str
) -> httpx.Response:
    """A request with somebody's key."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"authorization": f"Bearer {key}", **named}
    return http.post(server.url + path, json=body, headers=sent)


def test_requests_a_minute(shared: Server) -> None:
    """Beyond them 429, when to come again, and OpenAI's headers, on answers of either kind; the
    openai client knows it for what it is."""
    for left in ("1", "0"):
        answer = post(shared, "bob-k", ASKED)
        assert answer.status_code == 200
        assert answer.headers["x-ratelimit-limit-requests"] == "2"
        assert answer.headers["x-ratelimit-remaining-requests"] == left
        assert re.fullmatch(r"[0-9.]+s|1m0s", answer.headers["x-ratelimit-reset-requests"])
    refused = post(shared, "bob-k", ASKED)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert 0 < int(refused.headers["retry-after"]) <= 30
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert "x-ratelimit-limit-tokens" not in refused.headers
    client = openai.OpenAI(base_url=shared.url + "/v1", api_key="bob-k", max_retries=0)
    with pytest.raises(openai.RateLimitError, match="bob has used its 2 requests a minute"):
        client.completions.create(model="m", prompt="a")
    assert post(shared, "ann-k", ASKED).status_code == 200
    assert "x-ratelimit-limit-requests" not in post(shared, "plain-k", ASKED).headers


def test_tokens_a_minute(shared: Server) -> None:
    """They count once a request has ended, those of the prompt too; then the key waits."""
    first = post(shared, "cid-k", {**ASKED, "max_tokens": 60})
    assert first.status_code == 200
    assert first.headers["x-ratelimit-limit-tokens"] == "50"
    refused = post(shared, "cid-k", {"messages": SAID}, "/v1/chat/completions")
    assert refused.status_code == 429
    assert "cid has used its 50 tokens a minute" in refused.text
    assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
    assert post(shared, "cid-k", {"content": "a"}, "/tokenize").status_code == 200


def test_usage(shared: Server) -> None:
    """An admin's key reads what each key used, by name; other keys do not, and no key is told."""
    before = _usage(shared).get("ann", {"requests": 0, "generated_tokens": 0, "prompt_tokens": 0})
    asked = post(shared, "ann-k", ASKED).json()["usage"]
    after = _usage(shared)["ann"]
    assert after["requests"] == before["requests"] + 1
    assert after["generated_tokens"] == before["generated_tokens"] + asked["completion_tokens"]
    assert after["prompt_tokens"] == before["prompt_tokens"] + asked["prompt_tokens"]
    for key in ("plain-k", "dan-k"):
        refused = http.get(shared.url + "/v1/usage", headers={"authorization": f"Bearer {key}"})
        assert refused.status_code == 403
        assert "admin" in refused.text
    metrics = http.get(shared.url + "/metrics", headers={"authorization": "Bearer plain-k"}).text
    (requests,) = re.findall(r'worker_account_requests_total\{account="ann".*\} ([0-9.]+)', metrics)
    assert float(requests) == after["requests"]
    assert "ann-k" not in metrics


def _usage(server: Server) -> dict[str, Any]:
    answer = http.get(server.url + "/v1/usage", headers={"authorization": "Bearer ann-k"})
    assert answer.status_code == 200
    return answer.json()["data"]


@pytest.mark.parametrize(
    ("key", "fields", "tier"),
    [
        ("ann-k", {"service_tier": "priority"}, "priority"),
        ("ann-k", {"service_tier": "flex"}, "flex"),
        ("ann-k", {"service_tier": "auto"}, "default"),
        ("ann-k", {"service_tier": "flex", "priority": -3}, "priority"),
        # A key with a name has no more than its line says, 0 where it says nothing.
        ("dan-k", {"service_tier": "priority"}, "default"),
        ("dan-k", {"service_tier": "flex"}, "flex"),
        # One without a name has what it asks for.
        ("plain-k", {"service_tier": "priority"}, "priority"),
    ],
)
def test_the_tier_that_was_used(
    shared: Server, key: str, fields: dict[str, Any], tier: str
) -> None:
    """Answers say it, where it was asked for."""
    assert post(shared, key, {**ASKED, **fields}).json()["service_tier"] == tier
    chat = {"messages": SAID, "max_tokens": 4, **fields}
    path = "/v1/chat/completions"
    assert post(shared, key, chat, path).json()["service_tier"] == tier
    events = post(shared, key, {**chat, "stream": True}, path).text
    assert events.count(f'"service_tier":"{tier}"') == 1
    response = {"input": "Hi", "max_output_tokens": 4, **fields}
    assert post(shared, key, response, "/v1/responses").json()["service_tier"] == tier


def test_what_nobody_asked_for(shared: Server) -> None:
    """Without the field only Responses and Anthropic's API tell the tier; a header is heard."""
    assert "service_tier" not in post(shared, "plain-k", ASKED).text
    body = {"input": "Hi", "max_output_tokens": 4}
    assert post(shared, "plain-k", body, "/v1/responses").json()["service_tier"] == "default"
    message: dict[str, Any] = {"messages": SAID, "max_tokens": 4}
    for priority, tier in (("-5", "priority"), ("0", "standard"), ("7", "batch")):
        answer = post(shared, "plain-k", message, "/v1/messages", X_Priority=priority)
        assert answer.json()["usage"]["service_tier"] == tier
    message["service_tier"] = "standard_only"
    answer = post(shared, "plain-k", message, "/v1/messages", X_Priority="-5")
    assert answer.json()["usage"]["service_tier"] == "standard"


@pytest.mark.parametrize(
    ("path", "fields", "headers", "param"),
    [
        ("/v1/completions", {"priority": 101}, {}, "priority"),
        ("/v1/completions", {"priority": -101}, {}, "priority"),
        ("/v1/completions", {"priority": "high"}, {}, "priority"),
        ("/v1/completions", {"service_tier": "gold"}, {}, "service_tier"),
        ("/v1/completions", {}, {"X_Priority": "high"}, "X-Priority"),
        ("/v1/completions", {}, {"X_Priority": "1000"}, "X-Priority"),
        ("/completion", {"priority": 200}, {}, "priority"),
        ("/v1/chat/completions", {"service_tier": "standard_only"}, {}, "service_tier"),
        ("/api/generate", {"options": {"priority": 200}}, {}, "priority"),
    ],
)
def test_wrong_priorities(
    shared: Server, path: str, fields: dict[str, Any], headers: dict[str, str], param: str
) -> None:
    """400 that names the field or the header."""
    refused = post(shared, "plain-k", {**ASKED, "messages": SAID, **fields}, path, **headers)
    assert refused.status_code == 400, refused.text
    assert param in refused.text


def test_priorities_of_decisions(shared: Server) -> None:
    """The header counts for them too; in the body OpenAI has no such field."""
    body = {"input": "Hi", "questions": [{"type": "predicate", "instructions": "It rains."}]}
    theirs = {"state": "Hi", "questions": {"a": {"type": "noul", "instructions": "It rains."}}}
    for asked, path in ((body, "/v1/decisions"), (theirs, "/v1/systemone")):
        assert post(shared, "dan-k", asked, path, X_Priority="-50").status_code == 200
        refused = post(shared, "dan-k", asked, path, X_Priority="high")
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "X-Priority"
    refused = post(shared, "dan-k", {**body, "priority": 5}, "/v1/decisions")
    assert refused.json()["error"]["message"] == "priority is no field of this body."


def test_anthropics_words(shared: Server) -> None:
    """Its API takes its own words only."""
    body = {"messages": SAID, "max_tokens": 4, "service_tier": "flex"}
    refused = post(shared, "plain-k", body, "/v1/messages")
    assert refused.status_code == 400
    assert "service_tier must be auto or standard_only" in refused.text


def test_without_keys(tiny: Path) -> None:
    """Priorities count, nobody has limits, and this machine may ask what was used: nothing."""
    with serving("--model", tiny, "-t", "1") as server:
        answer = server.post({**ASKED, "priority": -3, "service_tier": "default"})
        assert answer.json()["service_tier"] == "priority"
        assert not [name for name in answer.headers if "ratelimit" in name]
        assert http.get(server.url + "/v1/usage").json() == {"data": {}, "object": "usage"}


def test_what_counts_as_usage(shared: Server) -> None:
    """Requests that compute, refused ones among them; not what only looks, is not there, or counts
    tokens."""
    before = _usage(shared).get("dan", {"requests": 0, "refused": 0})
    sent = {"authorization": "Bearer dan-k"}
    assert http.get(shared.url + "/v1/usage", headers=sent).status_code == 403
    assert http.get(shared.url + "/v1/nothing", headers=sent).status_code == 404
    assert post(shared, "dan-k", {"content": 7}, "/tokenize").status_code == 400
    assert _usage(shared).get("dan", before) == before
    assert post(shared, "dan-k", {**ASKED, "max_tokens": "x"}).status_code == 400
    after = _usage(shared)["dan"]
    assert after["requests"] == before["requests"] + 1
    assert after["refused"] == before["refused"] + 1


def test_usage_outlives_the_worker(tiny: Path, tmp_path: Path) -> None:
    """With --state-dir, sums go on where the worker before left them."""
    (tmp_path / "keys").write_text("ann-k name=ann admin\n")
    options = ("--model", tiny, "-t", "1", "--api-key-file", tmp_path / "keys")
    found: list[dict[str, int]] = []
    for _ in range(2):
        with serving(*options, "--state-dir", tmp_path / "state") as server:
            assert post(server, "ann-k", ASKED).status_code == 200
            found.append(_usage(server)["ann"])
            os.kill(server.pid, signal.SIGTERM)
            assert server.wait() == 0
    assert [each["requests"] for each in found] == [1, 2]
    assert found[1]["generated_tokens"] == 2 * found[0]["generated_tokens"]


def test_priorities_of_vectors(tiny: Path) -> None:
    """Embeddings have them too, in the body or the header."""
    with serving("--model", tiny, "-t", "1", "--pooling", "mean") as server:
        body = {"input": "Hi"}
        for asked in (body, {**body, "priority": 7}, {**body, "priority": -100}):
            assert server.post(asked, "/v1/embeddings").status_code == 200
        refused = server.post({**body, "priority": -101}, "/v1/embeddings")
        assert refused.json()["error"]["param"] == "priority"
        refused = http.post(
            server.url + "/v1/embeddings", json=body, headers={"x-priority": "high"}
        )
        assert refused.json()["error"]["param"] == "X-Priority"


def test_what_a_relay_says(tiny: Path) -> None:
    """With --trust-account, a key without a name may say whose a request is, and never makes an
    admin; without it nobody hears the header."""
    admin = "name=eve weight=2 priority=-5 admin"
    for more, tier in ((["--trust-account"], "priority"), ([], "default")):
        with serving("--model", tiny, "-t", "1", "--api-key", "relay", *more) as server:
            body = {**ASKED, "service_tier": "flex", "priority": -50 if more else 0}
            answer = post(server, "relay", body, X_Account=admin)
            assert answer.json()["service_tier"] == tier
            metrics = http.get(server.url + "/metrics", headers={"authorization": "Bearer relay"})
            assert ('account="eve"' in metrics.text) == bool(more)
            headers = {"authorization": "Bearer relay", "x-account": admin}
            usage = http.get(server.url + "/v1/usage", headers=headers)
            assert usage.status_code == 403
            wrong = post(server, "relay", ASKED, X_Account="weight=2")
            assert wrong.status_code == (400 if more else 200)
            assert post(server, "other", ASKED, X_Account=admin).status_code == 401
