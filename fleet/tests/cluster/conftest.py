"""A Ray cluster of a head and two nodes in this machine, with a fleet: `make check SUITE=fleet`."""

# pyright: standard
# Ray's own types are unknown in part.
from __future__ import annotations

import logging
import os
import threading
from collections.abc import Generator
from typing import Any

import pytest

from tests.support.programs import SLOW

STEP_SECONDS = "0.02"
# A node that says nothing is given up after three probes, a second each.
PROBES = {"health_check_period_ms": 1000, "health_check_timeout_ms": 1000}


@pytest.fixture(scope="session")
def cluster() -> Generator[Any]:
    """Three nodes of one CPU each; this process is connected to them."""
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_SERVE_LOG_TO_STDERR": "0",
        "STEP_SECONDS": STEP_SECONDS,
    }
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False,
            "_system_config": PROBES,
        },
    )  # fmt: skip
    try:
        for name in ("b", "c"):
            made.add_node(num_cpus=1, object_store_memory=100 << 20, resources={name: 1})
        ray.init(address=made.address, log_to_driver=False, logging_level=logging.WARNING)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture(scope="session")
def fleet(cluster: Any) -> Generator[str]:
    """Two workers of the demo model whose tokens take 20 ms, behind one endpoint."""
    from ray import serve

    from gguf_fleet.running import open_fleet
    from tests.cluster.fleets import fleet_of

    with open_fleet(fleet_of(2), threading.Event(), command=SLOW) as url:
        yield url
    serve.shutdown()
