"""What the makers recommend for sampling."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models.ggufs import I32, Key, f32
from tests.support.models.spoiled import keyed, refused, small, write_spoiled
from worker.engine.sampling import LIMITS
from worker.model.checks.hyperparameters import RANGES
from worker.model.config import load_config

_NAMES = {"temp": "temperature", "penalty_last_n": "repeat_last_n",
          "penalty_repeat": "repeat_penalty"}  # fmt: skip


def test_ranges_are_those_of_requests() -> None:
    """A recommendation may be what a request may ask for, and nothing else."""
    assert {_NAMES.get(key, key): found for key, found in RANGES.items()} == {
        field: LIMITS[field] for field in (_NAMES.get(key, key) for key in RANGES)
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [("temp", f32(-1)), ("temp", f32(1e30)), ("top_p", f32(1.5)), ("top_k", Key(I32, -2)),
     ("penalty_repeat", f32(0)), ("mirostat", Key(I32, 3))],
)  # fmt: skip
def test_a_recommendation_out_of_range(name: str, value: Key, tmp_path: Path) -> None:
    """The file is refused: requests that do not say otherwise would all be."""
    change = keyed(f"general.sampling.{name}", value)
    assert refused(write_spoiled(tmp_path, change)).code == "BAD_VALUE"


def test_recommendations_at_the_edge(tmp_path: Path) -> None:
    """Those that models carry are taken."""
    model = small()
    for name, value in (("temp", f32(0)), ("top_k", Key(I32, -1)), ("top_p", f32(1)),
                        ("penalty_last_n", Key(I32, -1))):  # fmt: skip
        model.keys[f"general.sampling.{name}"] = value
    assert load_config(model.write(tmp_path / "m.gguf")).sampling.top_k == -1
