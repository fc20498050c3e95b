"""A worker that is killed again and again while it answers a batch."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

from tests.support import http
from tests.support.programs.processes import PATIENCE_S, Server, serving, until
from worker.demo import MODEL_PATH

LINES, TOKENS = 500, 16
KILLS = int(os.environ.get("KILLS", "10"))
URL = "/v1/completions"


def lines() -> list[dict[str, Any]]:
    """Some begin alike. Greedy, so each has one text."""
    return [
        {
            "custom_id": f"line-{n}",
            "method": "POST",
            "url": URL,
            "body": {
                "prompt": f"{'Once upon a time there was a ' * (n % 3)}number {n}",
                "max_tokens": TOKENS,
                "temperature": 0,
                "ignore_eos": True,
            },
        }
        for n in range(LINES)
    ]


def create(server: Server) -> str:
    data = "".join(json.dumps(line) + "\n" for line in lines())
    file = {"file": ("in.jsonl", data)}
    uploaded = http.post(server.url + "/v1/files", data={"purpose": "batch"}, files=file)
    assert uploaded.status_code == 200, uploaded.text
    asked = {"input_file_id": uploaded.json()["id"], "endpoint": URL, "completion_window": "24h"}
    return server.post(asked, "/v1/batches").json()["id"]


def batch_of(server: Server, batch: str) -> dict[str, Any]:
    return http.get(f"{server.url}/v1/batches/{batch}").json()


def texts(server: Server, batch: str) -> list[tuple[str, str]]:
    """(custom_id, text) as the output has them, once the batch is complete."""
    deadline = time.monotonic() + 10 * PATIENCE_S
    while (state := batch_of(server, batch))["status"] != "completed":
        assert state["status"] in ("validating", "in_progress"), state
        assert time.monotonic() < deadline, state
        time.sleep(0.1)
    assert state["request_counts"] == {"total": LINES, "completed": LINES, "failed": 0}
    content = http.get(f"{server.url}/v1/files/{state['output_file_id']}/content").text
    found = [json.loads(line) for line in content.splitlines()]
    return [(line["custom_id"], line["response"]["body"]["choices"][0]["text"]) for line in found]


def test_no_line_is_lost(tmp_path: Path) -> None:
    """Killed at any moment it goes on: each line is answered once, with the undisturbed text.

    KILLS=50 kills it fifty times.
    """
    options = ("--model", MODEL_PATH, "-t", "1", "-c", "2048")
    with serving(*options, "--state-dir", tmp_path / "whole") as server:
        wanted = texts(server, create(server))
    assert [name for name, _ in wanted] == [f"line-{n}" for n in range(LINES)]
    draw, state, batch = random.Random(1), tmp_path / "killed", ""
    each = LINES / (KILLS + 1)  # lines between two kills, about
    for kill in range(KILLS):
        with serving(*options, "--state-dir", state) as server:
            batch = batch or create(server)
            goal = min(LINES - 5, round((kill + draw.random()) * each))
            until(lambda: batch_of(server, batch)["request_counts"]["completed"] >= goal)  # noqa: B023
            time.sleep(draw.random() * 0.1)  # to be killed at any moment of its work
            server.process.kill()
            server.wait()
    with serving(*options, "--state-dir", state) as server:
        before = batch_of(server, batch)["request_counts"]["completed"]
        assert LINES / 2 < before <= LINES
        assert texts(server, batch) == wanted
