"""What Ray Serve asks, several times a second, how many replicas a model shall have.

Ray sends this class to its controller as bytes; what it imports the controller's machine has. The
steadiness is `ReplicaCount`'s, so Ray's own delays are 0.
"""

from __future__ import annotations

import time
from typing import Any

from gguf_fleet.scale.count import ReplicaCount, ReplicaFigures, ScaleBounds


class ScalePolicy:
    """One model's; `bounds`: the fields of `ScaleBounds`."""

    def __init__(self, **bounds: Any) -> None:
        self._count = ReplicaCount(ScaleBounds(**bounds))

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """The number for Ray's AutoscalingContext; Ray itself wakes a model that has none."""
        found = figures_of(context.raw_metrics)
        return self._count.decide(time.monotonic(), found, context.target_num_replicas), {}


def figures_of(metrics: dict[str, dict[Any, list[Any]]]) -> list[ReplicaFigures]:
    """The last figures of each replica, of Ray's time series by name and replica."""
    names = ReplicaFigures.__struct_fields__
    replicas = {replica for name in names for replica in metrics.get(name, {})}
    return [
        ReplicaFigures(**{
            name: series[-1].value
            for name in names
            if (series := metrics.get(name, {}).get(replica))
        })
        for replica in replicas
    ]  # fmt: skip
