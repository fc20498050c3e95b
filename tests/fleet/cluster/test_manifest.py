"""The Serve part of examples/kuberay.yaml, read by Ray itself; it needs no cluster."""

from __future__ import annotations

import importlib

import yaml

from tests.examples.kuberay import parts


def test_ray_reads_it() -> None:
    """Ray's own schema takes it, and what it imports is there."""
    from ray.serve.schema import ServeDeploySchema

    config = yaml.safe_load(parts()[1]["spec"]["serveConfigV2"])
    read = ServeDeploySchema.model_validate(config)
    (application,) = read.applications
    module, name = application.import_path.split(":")
    assert callable(getattr(importlib.import_module(module), name))
    assert application.args == {"file": "/etc/fleet/fleet.toml"}
    # Ray lets unknown fields pass: none is used.
    assert set(config) <= set(ServeDeploySchema.model_fields)
    assert set(config["applications"][0]) <= set(type(application).model_fields)
