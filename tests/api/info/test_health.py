"""Health, models, HEAD."""

from __future__ import annotations

import pytest

from tests.support import http
from tests.support.programs.processes import Server


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/livez", "/readyz", "/ping", "/"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_health(server: Server, path: str, method: str) -> None:
    """Every health path answers 200; HEAD has GET's headers and no body."""
    answer = http.request(method, server.url + path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    if method == "HEAD":
        assert answer.content == b""
        return
    body = answer.json()
    assert body["status"] == "ok"
    assert body["model"] == "org/tiny"
    assert body["quant_kind"] == "F32"
    assert body["context_length"] == 2048
    assert body["vocab_size"] == 320
    assert body["slots_idle"] + body["slots_processing"] == 4


def test_memory_is_measured(server: Server) -> None:
    """memory_bytes is the process's resident memory as the kernel tells it, not a file's size."""
    statm = open(f"/proc/{server.process.pid}/statm").read()  # noqa: SIM115, PTH123
    resident = int(statm.split()[1]) * 4096
    assert server.health()["memory_bytes"] == pytest.approx(resident, rel=0.05)


def test_models(server: Server) -> None:
    """/v1/models lists the one model with what the file says about it."""
    answer = http.get(server.url + "/v1/models").json()
    assert answer["object"] == "list"
    (model,) = answer["data"]
    assert (model["id"], model["object"]) == ("org/tiny", "model")
    assert model["max_model_len"] == model["meta"]["n_ctx"] == 2048
    assert [each["model"] for each in answer["models"]] == ["org/tiny"]
    assert model["meta"]["n_vocab"] == 320
    assert model["meta"]["n_params"] > 100_000


@pytest.mark.parametrize("name", ["org/tiny", "org%2Ftiny"])
def test_model_by_id(server: Server, name: str) -> None:
    """An id with a slash is found raw and percent-encoded."""
    answer = http.get(f"{server.url}/v1/models/{name}")
    assert answer.status_code == 200
    assert answer.json()["id"] == "org/tiny"
