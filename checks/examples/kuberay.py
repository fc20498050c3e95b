"""The parts of examples/kuberay.yaml, for its tests here and on Ray."""

from __future__ import annotations

from typing import Any

import yaml

from checks.examples.programs import EXAMPLES


def parts() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """ConfigMap, RayService, NetworkPolicy."""
    config, service, policy = yaml.safe_load_all((EXAMPLES / "kuberay.yaml").read_text())
    return config, service, policy


def templates() -> dict[str, dict[str, Any]]:
    """The pod templates of head and workers."""
    cluster = parts()[1]["spec"]["rayClusterConfig"]
    (workers,) = cluster["workerGroupSpecs"]
    return {"head": cluster["headGroupSpec"]["template"], "workers": workers["template"]}
