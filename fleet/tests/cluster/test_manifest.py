"""The Serve part of examples/kuberay.yaml, read by Ray itself; it needs no cluster."""

# pyright: standard
# Ray's own types are unknown in part.
from __future__ import annotations

import importlib

import pytest
import yaml

from gguf_fleet.errors import DoesNotFitError
from gguf_fleet.file import DEMO
from gguf_fleet.need import FleetMachine
from tests.support.kuberay import parts


def test_ray_reads_it() -> None:
    """Ray's own schema takes it, and what it imports is there."""
    from ray.serve.schema import ServeDeploySchema

    config = yaml.safe_load(parts()[1]["spec"]["serveConfigV2"])
    read = ServeDeploySchema.model_validate(config)
    (application,) = read.applications
    module, name = application.import_path.split(":")
    assert callable(getattr(importlib.import_module(module), name))
    assert application.args == {"file": "/etc/fleet/fleet.toml", "wait": "900"}
    # Ray lets unknown fields pass: none is used.
    assert set(config) <= set(ServeDeploySchema.model_fields)
    assert set(config["applications"][0]) <= set(type(application).model_fields)


def test_it_waits_for_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head comes first; a fleet that never fits is refused by what follows."""
    from gguf_fleet import app

    looks: list[int] = []

    def nodes(*, with_gpus: bool) -> list[FleetMachine]:
        looks.append(len(looks))
        if len(looks) < 3:
            raise DoesNotFitError("No node of the cluster has CPUs and memory for workers.")
        return [FleetMachine("m", len(looks) // 2, 16 << 30)]

    monkeypatch.setattr(app, "nodes", nodes)
    monkeypatch.setattr(app, "_LOOK_S", 0.0)
    app.wait_for_room(DEMO, 60)
    assert len(looks) == 4  # two replicas, of one CPU each
    app.wait_for_room(DEMO, 0)
    assert len(looks) == 4
