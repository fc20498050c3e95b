"""The fleet on Kubernetes: core objects validated, fields compared; fleet/tests has the rest.

KubeRay's own definition is in no package: its fields are those of `ray.io/v1` in release 1.6.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from checks.examples import programs
from checks.examples.kuberay import parts, templates

SERVICE = {"serveConfigV2", "rayClusterConfig"}
CLUSTER = {
    "rayVersion", "authOptions", "gcsFaultToleranceOptions", "enableInTreeAutoscaling",
    "headGroupSpec", "workerGroupSpecs",
}  # fmt: skip
GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}


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
