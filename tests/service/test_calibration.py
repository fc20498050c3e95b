"""A calibration beside the model's file changes probabilities, never choices, and is named."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.support.programs.processes import Server, serving
from worker.demo import MODEL_PATH
from worker.gguf.header import Identity, ModelFile
from worker.model.calibration import FORMAT, KINDS, DecisionCalibration, calibration_path, hash_of

BODY = {
    "model": "m",
    "state": "What is the capital of France?",
    "questions": {
        "true": {"type": "noul", "instructions": "The capital of France is Paris."},
        "city": {"type": "choice", "criteria": {"Paris": None, "Rome": None, "Oslo": None}},
        "size": {"type": "score", "criteria": ["small", "large", "very large"]},
    },
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copy(MODEL_PATH, tmp_path_factory.mktemp("model") / "demo.gguf"))


def answers(server: Server) -> dict[str, Any]:
    reply = httpx.post(f"{server.url}/v1/systemone", json=BODY, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.json()["answers"]


def rows(found: dict[str, Any]) -> dict[str, list[float]]:
    noul = found["true"]["noul"]
    others = {key: list(found[key]["probabilities"].values()) for key in ("city", "size")}
    return {"true": [noul, 1 - noul], **others}


def calibrate(model: Path, version: str, orders: int) -> None:
    file = ModelFile(str(model), Identity.of(model.stat()), 0)
    temperatures = dict(zip(KINDS, (2.0, 3.0, 0.5), strict=True))
    found = DecisionCalibration(
        format=FORMAT, created="2026-11-28T10:00:00+00:00", model="m", sha256=hash_of([file]),
        size_bytes=file.size, modified_ns=(file.identity.mtime_ns,), prompt_version=version,
        orders=orders, modes=dict.fromkeys(KINDS, "letters"), temperatures=temperatures,
        questions={}, held_out={},
    )  # fmt: skip
    calibration_path(model).write_bytes(msgspec.json.encode(found))


def test_temperatures_are_used_and_named(model: Path) -> None:
    """ln p of each option is divided by its type's temperature, which the answer names; without a
    calibration, with a damaged one and with --decisions-calibration off it names none. The log
    tells of a damaged one, and of a model that was trained on other prompts."""
    with serving("-m", str(model)) as server:
        plain = answers(server)
    told = plain["city"]["diagnostics"]
    assert told["calibration"] is None
    calibrate(model, told["prompt_version"], 2)
    with serving("-m", str(model)) as server:
        found = answers(server)
        assert server.logged("decisions are calibrated")
    for key, temperature in (("true", 2.0), ("city", 3.0), ("size", 0.5)):
        assert found[key]["diagnostics"]["calibration"] == {"temperature": temperature}
        powers = [math.pow(each, 1 / temperature) for each in rows(plain)[key]]
        expected = [each / sum(powers) for each in powers]
        assert rows(found)[key] == pytest.approx(expected, abs=1e-4)
    assert found["city"]["choice"] == plain["city"]["choice"]
    with serving("-m", str(model), "--decisions-calibration", "off") as server:
        assert answers(server)["city"]["diagnostics"]["calibration"] is None
    calibration_path(model).write_text("{")
    with serving("-m", str(model), "--override-kv", "llama.decision.type=str:openjev") as server:
        assert answers(server)["city"]["diagnostics"]["calibration"] is None
        assert server.logged("a decision model is asked as any chat model")["family"] == "openjev"
        warning = server.logged("decisions are not calibrated")
        assert "is damaged" in warning["reason"]
        assert "worker bench --decisions" in warning["reason"]
