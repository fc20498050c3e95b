"""Pages of other origins change nothing, by the table of routes; and a name that somebody else
points at the worker is not the worker's."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from litestar import get, post

from tests.support import http
from tests.support.programs.processes import Server, serving
from worker.api.described import Described
from worker.api.intake.origins import Asker
from worker.http.hosts import Hosts
from worker.service.app import APIS

NAMED, LOCAL = "https://chat.example", "http://localhost:3000"
FOREIGN = (
    "https://evil.example", "null", "", "file://", "http://127.0.0.1.evil.example",
    "http://localhost.evil.example", "https://chat.example.evil.example", "http://10.0.0.1",
)  # fmt: skip
# Method, path and who may ask, of all that has a rule.
CHANGES = [
    (method, re.sub(r"\{[^}]*\}", "x", path), route.asker)
    for api in APIS
    for route in api.routes
    for path in sorted(route.handler.paths)
    for method in sorted(route.handler.http_methods - {"HEAD", "OPTIONS"})
    if route.asker is not None
]


@pytest.fixture(scope="module")
def named(tiny: Path) -> Generator[Server]:
    """A worker without a key whose answers pages of one origin may read, with a name."""
    options = ("--model", tiny, "-t", "1", "--cors", NAMED)
    with serving(*options, "--allowed-hosts", "LLM.example.com,*.pool.example") as server:
        yield server


def asked(server: Server, method: str, path: str, **headers: str) -> Any:
    return http.request(method, server.url + path, headers=headers)


def test_every_route_says_who_may_ask() -> None:
    """One that changes something or wakes the model has a rule; so have a job, which is read once,
    a scrape, which tells what was since the one before, and what accounts used."""

    @post("/x")
    async def changes() -> None: ...

    @get("/x")
    async def reads() -> None: ...

    assert Described(handler=reads, gives={}).asker is None
    for handler, wakes in ((changes, False), (reads, True)):
        assert Described(handler=handler, asker=Asker.OWN, wakes=wakes, gives={}).asker
        with pytest.raises(AssertionError, match="who may ask"):
            Described(handler=handler, wakes=wakes, gives={})
    assert {path for method, path, _ in CHANGES if method == "GET"} == {
        "/metrics", "/v1/jobs/x/stream", "/v1/inference/x/stream", "/v1/streams/x", "/v1/usage",
    }  # fmt: skip


def test_pages_of_other_origins_change_nothing(server: Server) -> None:
    """403 on every path that changes something, before the body is read; reading goes on."""
    assert {asker for _, _, asker in CHANGES} == set(Asker)
    for method, path, _ in CHANGES:
        for origin in FOREIGN:
            answer = asked(server, method, path, origin=origin)
            assert answer.status_code == 403, (method, path, origin)
            assert "other origins" in answer.text
        for site in ("cross-site", "same-site"):  # as of <img> and links, which name no origin
            answer = asked(server, method, path, **{"sec-fetch-site": site})
            assert answer.status_code == 403, (method, path, site)
        if path.startswith("/v1/") and method != "GET":
            whole = {"prompt": "a", "max_tokens": 1}
            answer = http.post(server.url + path, json=whole, headers={"origin": FOREIGN[0]})
            assert answer.status_code in (403, 405)
    assert asked(server, "GET", "/v1/models", origin=FOREIGN[0]).status_code == 200


def test_who_may_ask(named: Server) -> None:
    """A program, a page of this machine, the worker's own page; and where --cors names it another
    one, but for what concerns all."""
    own = named.url, "https://llm.example.com"
    for method, path, asker in CHANGES:
        if asker is Asker.LOCAL:
            assert asked(named, method, path, origin=NAMED).status_code == 403
            continue  # it would end the worker: `test_shutdown.py`
        for headers in (
            {}, {"origin": LOCAL}, {"origin": own[0]}, {"sec-fetch-site": "none"},
            {"sec-fetch-site": "same-origin"},
            {"origin": own[1], "host": "llm.example.com"},
            {"origin": own[1], "sec-fetch-site": "same-origin"},
        ):  # fmt: skip
            assert asked(named, method, path, **headers).status_code != 403, (path, headers)
        status = asked(named, method, path, origin=NAMED).status_code
        assert (status == 403) == (asker is Asker.OWN), path
        cross = {"origin": own[1], "sec-fetch-site": "cross-site"}
        assert asked(named, method, path, **cross).status_code == 403


@pytest.mark.parametrize(
    ("host", "may"),
    [
        ("localhost", True), ("LOCALHOST.:80", True), ("a.localhost", True), ("127.0.0.1", True),
        ("10.1.2.3:8080", True), ("[::1]:80", True), ("[fe80::1]", True),
        ("llm.example.com:80", True), ("a.pool.example", True),
        ("worker", False), ("gguf_worker:8080", False), ("nas.local", False),
        ("host.docker.internal", False), ("llm.home.arpa", False), ("llm.team.svc", False),
        ("llm.team.svc.cluster.local", False),
        ("evil.example", False), ("localhost.evil.example", False), ("127.0.0.1.nip.io", False),
        ("xlocalhost", False), ("localtest.me", False), ("pool.example", False),
        ("www.llm.example.com", False), ("apool.example", False), ("1.2.3", False),
    ],
)  # fmt: skip
def test_names_of_the_worker(named: Server, host: str, *, may: bool) -> None:
    """An address, localhost, a name of the option, which the refusal spells out; on every path."""
    for method, path in (("GET", "/"), ("GET", "/health"), ("POST", "/tokenize"), ("GET", "/x")):
        answer = asked(named, method, path, host=host)
        assert (answer.status_code != 403) == may, (path, answer.text)
        if not may:
            assert answer.json()["error"]["code"] == "unknown_host"
            assert f"--allowed-hosts {host.partition(':')[0]}" in answer.text


def test_a_page_whose_name_was_pointed_here(server: Server) -> None:
    """To its browser it is the worker's own page, and it sends what such a page sends."""
    where = server.url.rpartition(":")[2]
    own = {"host": f"evil.example:{where}", "origin": f"http://evil.example:{where}"}
    for headers in (own, {**own, "sec-fetch-site": "same-origin"}, {"host": own["host"]}):
        for method, path, _ in CHANGES:
            assert asked(server, method, path, **headers).status_code == 403


def test_where_no_name_is_asked_for() -> None:
    """A key is proof enough, and so is `*`; what the worker listens on is its name."""
    fields = [(b"host", b"evil.example:80")]
    assert Hosts((), "127.0.0.1", has_key=True).refusal_of(fields) is None
    assert Hosts(("*",), "127.0.0.1", has_key=False).refusal_of(fields) is None
    assert Hosts((), "127.0.0.1,Evil.Example", has_key=False).refusal_of(fields) is None
    assert Hosts((), "0.0.0.0", has_key=False).refusal_of(fields) is not None
    assert Hosts((), "0.0.0.0", has_key=False).refusal_of([(b"host", b"")]) is None


@pytest.mark.parametrize(
    ("listens", "may"),
    [("0.0.0.0", True), ("::", True), ("10.0.0.1", True), ("127.0.0.1,10.0.0.1", True),
     ("127.0.0.1", False), ("::1", False), ("localhost,127.0.0.1", False)],
)  # fmt: skip
def test_the_machines_own_name(monkeypatch: pytest.MonkeyPatch, listens: str, *, may: bool) -> None:
    """It passes if the worker listens beyond loopback; names below or above it never do."""
    monkeypatch.setattr("socket.gethostname", lambda: "Node-7.rack")
    hosts = Hosts((), listens, has_key=False)
    assert (hosts.refusal_of([(b"host", b"node-7.rack:8080")]) is None) == may
    for other in (b"node-7", b"a.node-7.rack", b"rack"):
        assert hosts.refusal_of([(b"host", other)]) is not None


def test_private_networks(named: Server) -> None:
    """A browser that asks whether a public page may ask this machine hears yes for a named one."""
    wish = {
        "access-control-request-method": "POST",
        "access-control-request-private-network": "true",
    }
    for origin, told in ((NAMED, "true"), (FOREIGN[0], None)):
        answer = asked(named, "OPTIONS", "/v1/models", origin=origin, **wish)
        assert answer.headers.get("access-control-allow-private-network") == told
    del wish["access-control-request-private-network"]
    answer = asked(named, "OPTIONS", "/v1/models", origin=NAMED, **wish)
    assert "access-control-allow-private-network" not in answer.headers
