"""How many gateways there shall be where each node has one: what Ray Serve asks several times a
second."""

# pyright: standard
# Ray's own types are unknown in part.
from __future__ import annotations

import time
from typing import Any

import ray

_LOOK_S = 1.0


class NodePolicy:
    """As many as there are nodes now. Ray sends this class to its controller as bytes."""

    def __init__(self) -> None:
        self._count = 0
        self._looked = float("-inf")

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        now = time.monotonic()
        if now - self._looked > _LOOK_S:
            nodes: list[dict[str, Any]] = ray.nodes()
            self._looked, self._count = now, sum(node["Alive"] for node in nodes)
        return self._count or context.target_num_replicas, {}
