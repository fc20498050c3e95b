"""A fleet on three nodes: what passes through it, and what it survives."""

# pyright: standard
# Ray's own types are unknown in part.
from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import openai
import pytest

from benchmarks.processes import CONTROLLER, GATEWAY, named, parent_of
from tests.cluster.fleets import (
    OPTIONS,
    PATIENCE_S,
    Stream,
    fleet_of,
    pids,
    replicas,
    two_streams,
    wait_for,
)
from tests.support import http
from tests.support.official import answered
from tests.support.programs import SLOW, serving, until

_VARIES = re.compile(
    rb'"(?:id|created|\w+_ms|\w+_per_second|cache_n|prompt_n|cached_tokens)":(?:"[^"]*"|[\d.e+-]+)'
)
COLD = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0}


@pytest.fixture(scope="module")
def expected(fleet: str) -> dict[str, str]:
    """What undisturbed streams say."""
    wait_for(fleet, 2)
    streams = {
        prompt: Stream(fleet, prompt) for prompt in ("Once upon a time", "One day, Anna found")
    }
    return {prompt: stream.end() for prompt, stream in streams.items()}


def test_a_stream_is_its_workers_own(fleet: str) -> None:
    """The same bytes, but for ids and times, as from a worker that is asked itself."""
    options = ("--alias", "demo", "-t", "1", *OPTIONS)
    for stream in (True, False):
        body = {**COLD, "stream": stream}
        with serving(*options) as alone:
            own = http.post(alone.url + "/v1/completions", json=body)
        through = http.post(fleet + "/v1/completions", json=body)
        assert _VARIES.sub(b"", through.content) == _VARIES.sub(b"", own.content)
        assert through.headers["content-type"] == own.headers["content-type"]
        assert through.headers.get_list("x-request-id") == [through.headers["x-request-id"]]


def test_official_client(fleet: str) -> None:
    """openai reads answers, streams, models and errors."""
    client = answered(fleet, [{"role": "user", "content": "What is 3 plus 4?"}])
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="none", prompt="Once")


def test_workers_are_not_open(fleet: str) -> None:
    """Each asks for a key of its own, which stands in no command line."""
    for pid in pids(fleet).values():
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        assert "--api-key" not in words
        assert "--die-with-parent" in words


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_who_leaves_frees_the_slot(fleet: str, stream: bool) -> None:
    """Through the gateway, to the worker."""
    host, port = fleet.removeprefix("http://").split(":")
    body = b'{"prompt":"Once","max_tokens":1500,"ignore_eos":true,"stream":%s}'
    body %= b"true" if stream else b"false"
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as client:
        client.sendall(head.encode() + body)
        until(lambda: sum(each["slots_processing"] for each in replicas(fleet).values()) == 1)
        if stream:
            assert client.recv(4096)
    until(lambda: sum(each["slots_processing"] for each in replicas(fleet).values()) == 0)
    until(lambda: sum(each["requests"] for each in replicas(fleet).values()) == 0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_worker_is_lost(fleet: str, expected: dict[str, str], number: signal.Signals) -> None:
    """Its stream goes on at the other replica, word for word, and the other's is not disturbed; its
    replica has a worker again."""
    wait_for(fleet, 2)
    streams = two_streams(fleet)
    name, pid = next(iter(pids(fleet).items()))
    os.kill(pid, number)
    assert [stream.end() for stream in streams] == list(expected.values())
    assert [stream.error for stream in streams] == [None, None]
    wait_for(fleet, 2)
    assert pids(fleet)[name] != pid
    assert Stream(fleet, "Once upon a time").end() == expected["Once upon a time"]


def test_a_worker_leaves_with_its_replica(fleet: str) -> None:
    """SIGKILL of Ray's process: its worker does not survive it, and there are two again."""
    wait_for(fleet, 2)
    name, pid = next(iter(pids(fleet).items()))
    os.kill(parent_of(pid), signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists(), PATIENCE_S)
    wait_for(fleet, 2, without=name)


def test_the_gateway_is_lost(fleet: str, expected: dict[str, str]) -> None:
    """Its streams end with it and their slots are free; the one that waited has the same port, and
    another one waits."""
    wait_for(fleet, 2)
    streams = two_streams(fleet)
    pid = http.get(fleet + "/fleet").json()["pid"]
    assert len(named(GATEWAY)) == 2
    os.kill(pid, signal.SIGKILL)
    for stream in streams:
        assert len(stream.end()) < len(expected[stream.prompt])
    wait_for(fleet, 2)
    until(lambda: sum(each["slots_processing"] for each in replicas(fleet).values()) == 0)
    until(lambda: len(set(named(GATEWAY)) - {pid}) == 2, PATIENCE_S)
    assert Stream(fleet, "Once upon a time").end() == expected["Once upon a time"]


def test_the_controller_is_lost(fleet: str, expected: dict[str, str]) -> None:
    """No stream is disturbed, and the next one makes replicas anew as the first one did."""
    wait_for(fleet, 2)
    streams = two_streams(fleet)
    (pid,) = named(CONTROLLER)
    os.kill(pid, signal.SIGKILL)
    assert [stream.end() for stream in streams] == list(expected.values())
    until(lambda: named(CONTROLLER) not in ([], [pid]), PATIENCE_S)
    name, pid = next(iter(pids(fleet).items()))
    os.kill(parent_of(pid), signal.SIGKILL)
    wait_for(fleet, 2, without=name)


def test_scaling_down_drains(fleet: str, expected: dict[str, str]) -> None:
    """Streams of replicas that go are read to their end; nobody is refused meanwhile.

    Another number of replicas is another application to Ray, so this is an update of all of them,
    the gateway too.
    """
    from ray import serve

    from gguf_fleet.app import application

    wait_for(fleet, 2)
    streams = two_streams(fleet)
    statuses: list[int] = []
    done = threading.Event()

    def go_on_asking() -> None:
        while not done.is_set():
            answer = http.post(fleet + "/v1/completions", json={**COLD, "max_tokens": 1})
            statuses.append(answer.status_code)

    asking = threading.Thread(target=go_on_asking)
    asking.start()
    try:
        serve.run(application(fleet_of(1), command=SLOW), name="fleet", route_prefix=None)
        wait_for(fleet, 1)
    finally:
        done.set()
        asking.join()
    assert set(statuses) == {200}
    assert [stream.end() for stream in streams] == list(expected.values())
    assert [stream.error for stream in streams] == [None, None]
    serve.run(application(fleet_of(2), command=SLOW), name="fleet", route_prefix=None)
    wait_for(fleet, 2)


def test_a_gateway_on_every_node(cluster: Any, fleet: str) -> None:
    """Those of one machine share its port, and one of them has it. A node that comes later gets
    one too, and when it goes the others stay."""
    from ray import serve

    from gguf_fleet.app import application

    changed = application(fleet_of(2, "every node"), command=SLOW)
    serve.run(changed, name="fleet", route_prefix=None)
    wait_for(fleet, 2)
    until(lambda: len(named(GATEWAY)) == 3, PATIENCE_S)
    raylets = {parent_of(pid) for pid in named(GATEWAY)}
    assert len(raylets) == 3
    before = set(named(GATEWAY))
    node = cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    until(lambda: len(named(GATEWAY)) == 4, PATIENCE_S)
    assert before < set(named(GATEWAY))
    cluster.remove_node(node)
    until(lambda: set(named(GATEWAY)) == before, PATIENCE_S)
    assert http.post(fleet + "/v1/completions", json={**COLD, "max_tokens": 1}).status_code == 200


def test_the_commands(cluster: Any, fleet: str, tmp_path: Path) -> None:
    """`plan --address` sees the nodes, `status` the replicas."""
    command = [sys.executable, "-m", "worker", "fleet"]
    plan = subprocess.run(
        [*command, "plan", "--address", cluster.address],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert plan.returncode == 0, plan.stderr
    assert len(re.findall(r"^ [\d.]+ [0-9a-f]{8} ", plan.stdout, re.MULTILINE)) == 3
    status = subprocess.run(
        [*command, "status", fleet], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert status.returncode == 0, status.stderr
    assert all(name in status.stdout for name in replicas(fleet))


def test_a_node_is_lost(cluster: Any, fleet: str) -> None:
    """Its replicas come up on the nodes that are left."""
    import ray

    wait_for(fleet, 2)
    places = {each["node"] for each in replicas(fleet).values()}
    head = cluster.head_node.node_id
    node = next(each for each in cluster.worker_nodes if each.node_id in places - {head})
    lost = next(name for name, each in replicas(fleet).items() if each["node"] == node.node_id)
    cluster.remove_node(node, allow_graceful=False)
    wait_for(fleet, 2, without=lost)
    assert {each["NodeID"] for each in ray.nodes() if each["Alive"]} >= {
        each["node"] for each in replicas(fleet).values()
    }
    assert http.post(fleet + "/v1/completions", json={**COLD, "max_tokens": 1}).status_code == 200
