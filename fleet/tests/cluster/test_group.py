"""One model over the three nodes of the cluster: a worker, and two RPC servers."""

# pyright: standard
# Ray's own types are unknown in part.
from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from gguf_fleet.file import Fleet, FleetEndpoint, FleetModel
from tests.cluster.fleets import (
    PATIENCE_S,
    PORT,
    Stream,
    pids,
    planned,
    replicas,
    wait_for,
)
from tests.support import http
from tests.support.programs import SLOW, until

SERVER = "worker.llama.rpc_server"
pytestmark = pytest.mark.rpc


def servers() -> set[int]:
    """The RPC servers that run now."""
    found: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if SERVER in words:
            found.add(int(folder.name))
    return found


@pytest.fixture(scope="module")
def group(cluster: Any, fleet: str) -> str:
    """The demo model over three nodes, one token each 20 ms, instead of the fleet that was there.
    Other tests may have lost a node."""
    from ray import serve

    from gguf_fleet.app import application

    if len(cluster.list_all_nodes()) < 3:
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    model = FleetModel(options=("-c", "1024", "-np", "2", "--cache-ram", "0"), rpc_nodes=2)
    made = Fleet(endpoint=FleetEndpoint(port=PORT), models={"demo": model})
    serve.run(application(made, command=SLOW), name="fleet", route_prefix="/")
    wait_for(fleet, 1)
    return fleet


def test_layers_are_on_three_nodes(group: str) -> None:
    """Two servers hold layers of the model, and it says what it says alone."""
    assert len(servers()) == 2
    (name,) = replicas(group)
    info = http.get(f"{group}/replicas/{name}/info").json()
    assert (info["backend"], info["vram_bytes"] > 0) == ("rpc", True)
    assert Stream(group, "Once upon a time", 20).end()


@pytest.mark.parametrize("lost", ["server", "worker"])
def test_they_share_one_fate(group: str, lost: str) -> None:
    """Whoever dies: all of the group are replaced, and the stream goes on there with the text of an
    undisturbed one."""
    wait_for(group, 1)
    before = servers()
    (name,) = replicas(group)
    expected = Stream(group, "Once upon a time").end()
    stream = Stream(group, "Once upon a time")
    assert stream.begun.wait(PATIENCE_S)
    os.kill(min(before) if lost == "server" else pids(group)[name], signal.SIGKILL)
    assert stream.end() == expected
    assert stream.error is None
    wait_for(group, 1, without=name)
    until(lambda: not servers() & before, PATIENCE_S)
    assert len(servers()) == 2


def test_the_plan_says_it(cluster: Any, tmp_path: Path) -> None:
    """`worker fleet plan` gives each part a node of its own."""
    done = planned(cluster.address, tmp_path, "[models.demo]\nrpc_nodes = 8\n")
    assert done.returncode == 4
    assert "on each of 8 other machines" in done.stderr
