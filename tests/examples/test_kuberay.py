"""The fleet on Kubernetes: the core objects validated, the rest compared with what it must fit.

KubeRay's own definition is in no package: its fields are those of `ray.io/v1` in release 1.6.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.examples import programs
from tests.examples.kuberay import parts, templates
from tests.support.checkout import ROOT
from worker.fleet.choices import DRAIN_S, settings_of
from worker.fleet.file import Fleet, FleetReplicas, read_fleet

SERVICE = {"serveConfigV2", "rayClusterConfig"}
CLUSTER = {
    "rayVersion", "authOptions", "gcsFaultToleranceOptions", "enableInTreeAutoscaling",
    "headGroupSpec", "workerGroupSpecs",
}  # fmt: skip
GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
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


def test_core_objects_validate(tmp_path: Path) -> None:
    """`kubernetes-validate` finds nothing that the API does not know, in the pods too."""
    config, _, policy = parts()
    pods = [
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": pod}
        for name, pod in templates().items()
    ]
    file = tmp_path / "core.yaml"
    file.write_text(yaml.safe_dump_all([config, policy, *pods]))
    command = [programs.command("kubernetes-validate"), "--strict", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_fields_are_kuberays() -> None:
    """No other field is used than those that the definition has."""
    spec = parts()[1]["spec"]
    assert set(spec) == SERVICE
    assert set(spec["rayClusterConfig"]) == CLUSTER
    assert set(spec["rayClusterConfig"]["headGroupSpec"]) == {"rayStartParams", "template"}
    assert spec["rayClusterConfig"]["authOptions"] == {"mode": "token"}
    for group in spec["rayClusterConfig"]["workerGroupSpecs"]:
        assert set(group) == GROUP


def test_ray_is_the_one_that_is_installed() -> None:
    """One version everywhere: that of the extra."""
    (line,) = [
        line for line in (ROOT / "pyproject.toml").read_text().splitlines() if "ray =" in line
    ]
    version = parts()[1]["spec"]["rayClusterConfig"]["rayVersion"]
    assert f"ray[serve]>={version.rpartition('.')[0]}," in line


def test_streams_get_their_drain_time(fleet: Fleet) -> None:
    """A pod has longer than its workers need to end their streams."""
    (model,) = fleet.models.values()
    drain = settings_of(model.options).drain_timeout
    assert drain == DRAIN_S
    assert templates()["workers"]["spec"]["terminationGracePeriodSeconds"] > drain + MARGIN_S


def test_pods_hold_what_the_file_asks_for(fleet: Fleet) -> None:
    """Each machine has the threads of a replica, and there may be a machine for each."""
    (model,) = fleet.models.values()
    assert isinstance(model.replicas, FleetReplicas)
    (group,) = parts()[1]["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    (container,) = templates()["workers"]["spec"]["containers"]
    assert int(container["resources"]["limits"]["cpu"]) >= (settings_of(model.options).threads or 1)
    assert group["minReplicas"] >= model.replicas.min
    assert group["maxReplicas"] >= model.replicas.max
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert model.file is not None
    assert str(Path(model.file).parent) in mounts
