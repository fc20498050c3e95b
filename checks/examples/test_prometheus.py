"""Prometheus itself with the files of examples/: it scrapes a worker, and its alert fires."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from checks.examples.programs import EXAMPLES, Program, command, free_ports
from checks.examples.test_dashboards import expressions
from tests.support import http
from tests.support.programs.processes import Server, serving, until

WHERE = "on Debian: apt-get install prometheus"


def ask(url: str, path: str, **parameters: str) -> Any:
    """What its API answers."""
    answer = http.get(f"{url}/api/v1/{path}", params=parameters).json()
    assert answer["status"] == "success", answer
    return answer["data"]


def files(folder: Path, server: Server) -> Path:
    """The example's files with that one worker, and without its patience."""
    settings = yaml.safe_load((EXAMPLES / "prometheus.yaml").read_text())
    settings["global"] = {"scrape_interval": "2s", "evaluation_interval": "1s"}
    settings["scrape_configs"][0]["scrape_timeout"] = "2s"
    target = server.url.removeprefix("http://")
    settings["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    alerts = yaml.safe_load((EXAMPLES / "prometheus-alerts.yaml").read_text())
    for rule in alerts["groups"][0]["rules"]:
        rule["for"] = "0s"
    for name, content in (("prometheus.yaml", settings), ("prometheus-alerts.yaml", alerts)):
        (folder / name).write_text(json.dumps(content))
    return folder / "prometheus.yaml"


def test_promtool_accepts_them(server: Server) -> None:
    """The configuration, the alerts, and what a worker exports."""
    promtool = command("promtool", WHERE)
    for words in (("config", "prometheus.yaml"), ("rules", "prometheus-alerts.yaml")):
        check = [promtool, "check", *words]
        done = subprocess.run(check, cwd=EXAMPLES, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    metrics = http.get(server.url + "/metrics").text
    done = subprocess.run(
        [promtool, "check", "metrics"], input=metrics, capture_output=True, text=True, timeout=60
    )
    # Exit code 3 is advice on names, some of which are llama-server's.
    assert done.returncode in (0, 3), done.stderr


def test_prometheus_scrapes_a_worker(tmp_path: Path) -> None:
    """Every expression of the dashboard and the alerts has an answer; a dead worker is an alert."""
    prometheus = command("prometheus", WHERE)
    (port,) = free_ports(1)
    with serving() as server:
        http.post(server.url + "/v1/completions", json={"prompt": "Once", "max_tokens": 4})
        words = (
            f"--config.file={files(tmp_path, server)}",
            f"--storage.tsdb.path={tmp_path / 'db'}",
            f"--web.listen-address=127.0.0.1:{port}",
        )
        with Program(prometheus, *words) as program:
            url = f"http://127.0.0.1:{port}"
            program.wait_for("ready to receive web requests")
            until(lambda: is_up(url))
            for expression in expressions():
                ask(url, "query", query=expression)
            (steps,) = ask(url, "query", query="worker_steps_total")["result"]
            assert int(steps["value"][1]) > 0
            server.end()
            until(lambda: "WorkerDown" in firing(url))


def is_up(url: str) -> bool:
    """Whether the one target answered the last time."""
    return [each["value"][1] for each in ask(url, "query", query="up")["result"]] == ["1"]


def firing(url: str) -> set[str]:
    """The names of the alerts that fire."""
    alerts = ask(url, "alerts")["alerts"]
    return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}
