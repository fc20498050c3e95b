"""A node of the cluster with GPUs, as far as Ray knows: this machine has none."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gguf_fleet.file import Fleet, FleetEndpoint, FleetModel
from gguf_fleet.group.server import RpcCharge
from tests.cluster.fleets import planned, replicas, wait_for
from tests.support import http
from tests.support.gateways import Loop
from tests.support.programs import WITH_GPU

OPTIONS = ("-c", "1024", "-np", "2", "--cache-ram", "0")
PORT = 8769


@contextmanager
def rpc_server() -> Generator[str]:
    """The address of one, which is gone afterwards."""
    loop, charge = Loop(), RpcCharge("127.0.0.1", 1)
    try:
        yield loop.run(charge.start())
    finally:
        process = charge._process  # pyright: ignore[reportPrivateUsage]
        if process is not None:
            process.kill()
            loop.run(charge.wait_for_exit())
        loop.stop()


@pytest.fixture
def node(cluster: Any) -> Generator[Any]:
    """A node with a GPU, gone afterwards."""
    made = cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=100 << 20)
    try:
        yield made
    finally:
        cluster.remove_node(made)


def test_what_its_build_does_not_see_is_told(cluster: Any, node: Any, tmp_path: Path) -> None:
    """Ray gives a GPU away that the worker there could not use."""
    done = planned(cluster.address, tmp_path, "[models.demo]\ngpus = 1\n")
    assert done.returncode == 4
    assert f"{node.node_id[:8]} has 1, and the worker's build there sees 0." in done.stderr


@pytest.mark.rpc
def test_layers_are_on_the_gpu_of_a_node(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in for it is an RPC server. Its memory is asked on the node, all layers go
    there, and Ray puts the replica there."""
    from gguf_fleet.cluster import nodes
    from gguf_fleet.running import open_fleet

    with rpc_server() as address:
        monkeypatch.setenv("STAND_IN_GPU", address)
        made = cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=100 << 20)
        try:
            (there,) = (each for each in nodes(WITH_GPU, with_gpus=True) if each.gpus)
            assert there.node == made.node_id
            (device,) = there.devices
            assert device.total >= device.free == device.room > 1 << 30
            model = FleetModel(options=OPTIONS, gpus=1)
            fleet = Fleet(endpoint=FleetEndpoint(port=PORT), models={"demo": model})
            with open_fleet(fleet, threading.Event(), command=WITH_GPU) as url:
                wait_for(url, 1)
                ((name, replica),) = replicas(url).items()
                assert replica["node"] == made.node_id
                info = http.get(f"{url}/replicas/{name}/info").json()
                assert info["vram_bytes"] > 0
                body = {"prompt": "Once upon a time", "max_tokens": 5}
                assert http.post(url + "/v1/completions", json=body).status_code == 200
        finally:
            cluster.remove_node(made)
