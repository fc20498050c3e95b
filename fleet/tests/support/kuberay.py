"""The parts of examples/kuberay.yaml, for its tests."""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.programs import ROOT


def parts() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """ConfigMap, RayService, NetworkPolicy."""
    config, service, policy = yaml.safe_load_all((ROOT / "examples" / "kuberay.yaml").read_text())
    return config, service, policy


def templates() -> dict[str, dict[str, Any]]:
    """The pod templates of head and workers."""
    cluster = parts()[1]["spec"]["rayClusterConfig"]
    (workers,) = cluster["workerGroupSpecs"]
    return {"head": cluster["headGroupSpec"]["template"], "workers": workers["template"]}
