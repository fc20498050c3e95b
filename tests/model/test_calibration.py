"""A calibration is for one file's bytes, and for questions that are asked in one way."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from worker.gguf.header import Identity, ModelFile
from worker.model.calibration import (
    FORMAT,
    CalibrationError,
    DecisionCalibration,
    calibration_path,
    hash_of,
    load_calibration,
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights" * 1000)
    return path


def files_of(path: Path) -> list[ModelFile]:
    return [ModelFile(str(path), Identity.of(path.stat()), 0)]


def measured(path: Path) -> DecisionCalibration:
    found = DecisionCalibration(
        format=FORMAT, created="2026-11-28T10:00:00+00:00", model="m",
        sha256=hash_of(files_of(path)), size_bytes=path.stat().st_size,
        modified_ns=(path.stat().st_mtime_ns,), prompt_version="1", orders=2,
        modes={"statement": "letters", "choice": "texts", "scale": "letters"},
        temperatures={"statement": 1.5, "choice": 2.0}, questions={}, held_out={},
    )  # fmt: skip
    calibration_path(path).write_bytes(msgspec.json.encode(found))
    return found


def test_it_lies_beside_the_file(model: Path) -> None:
    """What was written beside a file is loaded with it; without one there is none."""
    assert load_calibration(files_of(model)) is None
    assert calibration_path(model).name == "model.gguf.decisions.json"
    assert measured(model) == load_calibration(files_of(model))


def test_a_copy_is_the_same_file(model: Path) -> None:
    """A file with another time but the same bytes keeps its calibration."""
    found = measured(model)
    os.utime(model, ns=(1, 1))
    assert load_calibration(files_of(model)) == found


def test_other_weights_have_none(model: Path) -> None:
    """One byte changed, or one more: the calibration is of another file."""
    measured(model)
    data = bytearray(model.read_bytes())
    data[100] ^= 1
    model.write_bytes(data)
    os.utime(model, ns=(1, 1))
    with pytest.raises(CalibrationError, match="was measured for another file"):
        load_calibration(files_of(model))
    model.write_bytes(bytes(data) + b"x")
    with pytest.raises(CalibrationError, match="was measured for another file"):
        load_calibration(files_of(model))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"\xff",
        b"{}",
        b" " * (1 << 20) + b"{}",
    ],
)
def test_a_damaged_one_says_so(model: Path, text: bytes) -> None:
    """What is no calibration is an error with the next step, never a crash."""
    calibration_path(model).write_bytes(text)
    with pytest.raises(CalibrationError, match="worker bench --decisions"):
        load_calibration(files_of(model))


@pytest.mark.parametrize("temperature", [0, -1, 1e9, "warm"])
def test_a_temperature_must_be_one(model: Path, temperature: object) -> None:
    """A temperature that is not above zero, or beyond reason, is damage."""
    made = msgspec.to_builtins(measured(model))
    made["temperatures"]["scale"] = temperature
    calibration_path(model).write_bytes(msgspec.json.encode(made))
    with pytest.raises(CalibrationError, match="damaged"):
        load_calibration(files_of(model))


def test_a_folder_in_its_place_is_none(model: Path) -> None:
    """Only a file is a calibration."""
    calibration_path(model).mkdir()
    assert load_calibration(files_of(model)) is None


def test_two_options_are_a_statement(model: Path) -> None:
    """A choice of two has the temperature of statements; kinds without one have none."""
    found = measured(model)
    assert found.temperature("statement", 2, "letters") == 1.5
    assert found.temperature("choice", 2, "letters") == 1.5
    assert found.temperature("choice", 3, "texts") == 2.0
    assert found.temperature("scale", 2, "letters") is None


def test_it_is_for_one_way_to_ask(model: Path) -> None:
    """Another prompt, number of orders or mode has no temperature."""
    found = measured(model)
    assert found.is_for("1", 2)
    assert not found.is_for("2", 2)
    assert not found.is_for("1", 1)
    assert found.temperature("statement", 2, "texts") is None
    assert found.temperature("choice", 3, "letters") is None
