"""A control vector's file: what it adds, and that a wrong one is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.models import ggufs
from tests.support.models.adapters import control_gguf
from tests.support.models.ggufs import text
from tests.support.models.spoiled import Change, Row, keyed, rows, tensor
from worker.errors import ModelFileError
from worker.model.checks import model as checks
from worker.model.config import load_config
from worker.model.control_vector import load_control_vector

NAN = np.full(64, np.nan, "<f4").tobytes()
WRONG: list[Row] = [
    ("a model", "NOT_CONTROL_VECTOR", keyed("general.architecture", text("llama"))),
    ("nothing", "NOT_CONTROL_VECTOR", lambda g: setattr(g, "tensors", [])),
    ("no number", "ADAPTER_MISMATCH", tensor("direction.1", name="direction.x")),
    ("the layer 0", "ADAPTER_MISMATCH", tensor("direction.1", name="direction.0")),
    ("a layer too many", "ADAPTER_MISMATCH", tensor("direction.1", name="direction.3")),
    ("too short", "ADAPTER_MISMATCH", tensor("direction.1", shape=(32,), data=bytes(128))),
    ("a matrix", "ADAPTER_MISMATCH", tensor("direction.1", shape=(32, 2))),
    ("float16", "ADAPTER_MISMATCH", tensor("direction.1", type=1, data=bytes(128))),
    ("no number at all", "ADAPTER_MISMATCH", tensor("direction.1", data=NAN)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "change"), rows(WRONG))
def test_refused(tmp_path: Path, code: str, change: Change) -> None:
    """In a sentence, with a code that is listed."""
    config = load_config(ggufs.write_llama(tmp_path / "m.gguf", layers=3))
    gguf = control_gguf([1, 2], 64)
    change(gguf)
    path = gguf.write(tmp_path / "v.gguf")
    with pytest.raises(ModelFileError) as caught:
        load_control_vector([(str(path), 1.0)], None, config)
    assert caught.value.code == code
    assert re.search(rf"\b{code}\b", checks.__doc__ or "")
    assert caught.value.hint


def test_the_sum(tmp_path: Path) -> None:
    """Each with its scale; a layer without a direction gets nothing."""
    config = load_config(ggufs.write_llama(tmp_path / "m.gguf", layers=3))
    files = [
        (str(control_gguf([layer], 64, seed=layer).write(tmp_path / f"{layer}.gguf")), scale)
        for layer, scale in ((2, 0.5), (2, -1.0))
    ]
    one = load_control_vector(files[:1], None, config)
    assert (one.first, one.last) == (1, 3)
    assert not one.values[0].any()
    assert np.array_equal(load_control_vector(files, (1, 2), config).values, -one.values)
    ranges = [load_control_vector(files, layers, config).digest for layers in ((1, 2), (1, 1))]
    assert len({one.digest, *ranges}) == 3
