"""The configurations for systemd, Kubernetes and llama-swap: validated, and done as they say."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from checks.examples import programs
from checks.examples.programs import EXAMPLES, Program, Reader
from tests.support import http
from tests.support.programs.processes import until
from worker.demo import MODEL_PATH
from worker.errors import DoesNotFitError, UsageError
from worker.settings import Settings

UNIT = EXAMPLES / "gguf-worker@.service"
# What a worker needs after its drain time.
LAST_BYTES_S = 1


def unit() -> configparser.SectionProxy:
    """The template's section [Service]."""
    parser = configparser.ConfigParser(delimiters="=", interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read(UNIT)
    return parser["Service"]


def test_systemd_verifies(tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say."""
    copy = tmp_path / UNIT.name
    ours = str(Path(sys.executable).parent / "worker")
    copy.write_text(UNIT.read_text().replace("/opt/gguf-worker/.venv/bin/worker", ours))
    command = [programs.command("systemd-analyze", "it comes with systemd"), "verify", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_systemd_service(tmp_path: Path) -> None:
    """The unit's command takes variables of the .env file, is active once ready, leaves with 0."""
    (port,) = programs.free_ports(1)
    service = unit()
    start = shlex.split(service["ExecStart"].replace("%i", str(port)))
    assert Path(start[0]).name == "worker"
    post = shlex.split(service["ExecStartPost"].replace("%i", str(port)))
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    env = {"LLAMA_ARG_ALIAS": "mine"}
    with Program("worker", *start[1:], env=env, step_seconds=0.02) as program:
        main = {**os.environ, "MAINPID": str(program.process.pid)}
        assert subprocess.run(post, env=main, timeout=60).returncode == 0
        url = f"http://127.0.0.1:{port}"
        assert http.get(url + "/v1/models").json()["data"][0]["id"] == "mine"
        reader = Reader(url, tokens=50, model="mine")
        program.process.terminate()
        assert reader.result() == "length"
        assert program.wait(int(service["TimeoutStopSec"])) == 0
        # Nobody serves there any more, and who waits for that is told so.
        assert subprocess.run(post, env=main, timeout=60).returncode == 1


def test_systemd_does_not_repeat_what_is_hopeless() -> None:
    """systemd repeats no wrong usage and no lack of memory, and waits longer than the drain."""
    service = unit()
    codes = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert codes == {UsageError.exit_code, DoesNotFitError.exit_code}
    assert int(service["TimeoutStopSec"]) > Settings().drain_timeout + LAST_BYTES_S


def kubernetes() -> tuple[dict[str, Any], dict[str, Any]]:
    """Deployment and Service."""
    deployment, service = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())
    return deployment, service


def test_kubernetes_validates() -> None:
    """`kubernetes-validate` finds nothing that the API does not know."""
    command = [programs.command("kubernetes-validate"), "--strict", "examples/kubernetes.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=programs.ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_kubernetes_names_fit() -> None:
    """The Service finds the pods and their port; a pod has time for its pause and its drain."""
    deployment, service = kubernetes()
    spec, pod = deployment["spec"], deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert service["spec"]["ports"][0]["targetPort"] in ports
    assert f"--port={ports['http']}" in container["args"]
    drain = next(float(a.split("=")[1]) for a in container["args"] if "--drain-timeout" in a)
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pause + drain + LAST_BYTES_S


def test_kubernetes_container() -> None:
    """The container's command answers the probes without the key, and SIGTERM ends it with 0."""
    (container,) = kubernetes()[0]["spec"]["template"]["spec"]["containers"]
    (port,) = programs.free_ports(1)
    here = {"--host": "127.0.0.1", "--port": str(port), "--model": str(MODEL_PATH)}
    names = [argument.split("=")[0] for argument in container["args"]]
    assert here.keys() <= set(names)
    arguments = [
        f"{n}={here[n]}" if n in here else a for n, a in zip(names, container["args"], strict=True)
    ]
    variable = container["env"][0]["name"]
    url = f"http://127.0.0.1:{port}"
    probes = {
        kind: url + container[kind]["httpGet"]["path"]
        for kind in ("startupProbe", "readinessProbe", "livenessProbe")
    }
    assert all(container[kind]["httpGet"]["port"] == "http" for kind in probes)
    command = (*container["command"], *arguments)
    with Program(*command, env={variable: "key"}, step_seconds=0.02) as program:
        until(lambda: programs.is_serving(url))
        assert {http.get(path).status_code for path in probes.values()} == {200}
        assert http.get(url + "/v1/models").status_code == 401
        reader = Reader(url, tokens=100, key="key")
        program.process.terminate()
        until(lambda: http.get(probes["readinessProbe"]).status_code == 503)
        assert reader.result() == "length"
        assert program.wait() == 0


@pytest.mark.parametrize("name", ["demo", "tinyllama"])
def test_llama_swap(name: str) -> None:
    """A model's command, run as llama-swap runs it, serves under its name and stops in time.

    No package holds llama-swap or a validator of its configuration: the schema is a file in its
    repository, config-schema.json.
    """
    config = yaml.safe_load((EXAMPLES / "llama-swap.yaml").read_text())
    (port,) = programs.free_ports(1)
    macros = {**config["macros"], "PORT": str(port), "MODEL_ID": name}
    model = config["models"][name]

    def expanded(text: str) -> str:
        for macro, value in macros.items():  # in order: ours may hold llama-swap's own
            text = text.replace("${" + macro + "}", value)
        return text

    words = [
        str(MODEL_PATH) if word.endswith(".gguf") else word
        for word in shlex.split(expanded(model["cmd"]))
    ]
    url = expanded(model["proxy"])
    assert model["concurrencyLimit"] == Settings().slots + Settings().queue_size
    with Program(*words) as program:
        until(lambda: programs.is_serving(url))
        assert Reader(url, model=name, tokens=20).result() == "length"
        assert [entry["id"] for entry in http.get(url + "/v1/models").json()["data"]] == [name]
        os.killpg(program.process.pid, signal.SIGTERM)
        assert program.wait(config["unloadTimeout"]) == 0
    assert config["unloadTimeout"] > Settings().drain_timeout + LAST_BYTES_S
