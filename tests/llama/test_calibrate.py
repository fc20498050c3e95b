"""Which attention a model gets: measured once for its heads on this CPU, and kept."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from worker import log
from worker.llama import calibrate
from worker.llama.calibrate import (
    AttentionShape,
    Calibration,
    StepTimes,
    calibration,
    known_calibrations,
)
from worker.llama.context import Context

SHAPE = AttentionShape(heads=4, kv_heads=2, key_length=32, value_length=32, cells=("f16", "f16"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it is kept."""
    log.configure("console", "error")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "_PATIENCE_S", 600.0)
    return tmp_path / "gguf-worker" / "attention"


def test_it_is_measured_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways at all depths; who comes later finds it, and it can be made again."""
    found = calibration(SHAPE)
    assert found is not None
    assert {(step.rows, step.depth) for step in found.steps} == {
        *((128, depth) for depth in range(0, 1024, 128)),
        *((rows, depth) for rows in (1, 8) for depth in (128, 512, 1024)),
    }
    assert all(step.fused_s > 0 < step.plain_s for step in found.steps)
    (path,) = folder.iterdir()
    assert known_calibrations() == [found]

    def measure(shape: AttentionShape) -> Calibration:
        return msgspec.structs.replace(found, shape=shape, ratio=0.5)

    monkeypatch.setattr(calibrate, "_measure", measure)
    assert calibration(SHAPE) == found
    path.write_text("{")
    remade = calibration(SHAPE)
    assert remade is not None
    assert remade.attention == "plain"
    assert known_calibrations() == [remade]
    for changed in ({"heads": 8}, {"cells": ("f32", "f16")}):
        assert calibration(msgspec.structs.replace(SHAPE, **changed)) != remade
    assert len(known_calibrations()) == 3


@pytest.mark.parametrize("error", [MemoryError(), OSError("no room")])
def test_where_it_cannot_be_measured(
    error: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is found, and nothing is kept: the next start tries again."""

    def fail(_: Context) -> None:
        raise error

    monkeypatch.setattr(Context, "decode", fail)
    assert calibration(SHAPE) is None
    assert not folder.exists()


def test_a_busy_machine_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration that takes too long is given up."""
    monkeypatch.setattr(calibrate, "_PATIENCE_S", 0.0)
    assert calibration(SHAPE) is None


@pytest.mark.parametrize(("ratio", "attention"), [(0.5, "plain"), (0.9, "fused"), (2, "fused")])
def test_plain_attention_must_gain(ratio: float, attention: str) -> None:
    """Where both take the same time it is fused, which takes less memory."""
    found = Calibration(
        shape=SHAPE, cpu="", llama_cpp="", measured="", seconds=0,
        steps=(StepTimes(1, 128, 1.0, ratio),), ratio=ratio,
    )  # fmt: skip
    assert found.attention == attention
