"""examples/kuberay.yaml, compared with what the fleet in it must fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from gguf_fleet.choices import DRAIN_S, with_defaults
from gguf_fleet.command import ask_plan
from gguf_fleet.file import Fleet, FleetReplicas, read_fleet
from tests.support.kuberay import parts, templates
from tests.support.programs import ROOT

# What Ray adds to a replica's drain time before it kills it.
MARGIN_S = 10


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """The fleet.toml of the ConfigMap; its keys are a file of a Secret."""
    keys = tmp_path / "keys"
    keys.write_text("secret")
    text = parts()[0]["data"]["fleet.toml"]
    path = tmp_path / "fleet.toml"
    path.write_text(text.replace("/etc/fleet-keys/keys", str(keys)))
    return read_fleet(path)


def test_ray_is_the_one_that_is_installed() -> None:
    """One version everywhere."""
    version = parts()[1]["spec"]["rayClusterConfig"]["rayVersion"]
    text = (ROOT / "fleet" / "pyproject.toml").read_text()
    assert f'"ray[serve]>={version.rpartition(".")[0]},' in text


def test_streams_get_their_drain_time(fleet: Fleet) -> None:
    """A pod has longer than its workers need to end their streams."""
    (model,) = fleet.models.values()
    drain = ask_plan(with_defaults(model.options)).options.drain_timeout
    assert drain == DRAIN_S
    assert templates()["workers"]["spec"]["terminationGracePeriodSeconds"] > drain + MARGIN_S


def test_pods_hold_what_the_file_asks_for(fleet: Fleet) -> None:
    """Each machine has the threads of a replica, and there may be a machine for each."""
    (model,) = fleet.models.values()
    assert isinstance(model.replicas, FleetReplicas)
    (group,) = parts()[1]["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    (container,) = templates()["workers"]["spec"]["containers"]
    assert int(container["resources"]["limits"]["cpu"]) >= (
        ask_plan(model.options).options.threads or 1
    )
    assert group["minReplicas"] >= model.replicas.min
    assert group["maxReplicas"] >= model.replicas.max
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert model.file is not None
    assert str(Path(model.file).parent) in mounts
