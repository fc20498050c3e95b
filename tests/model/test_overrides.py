"""Keys of a header that an operator says in the place of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models import ggufs
from worker.errors import ModelFileError, UsageError
from worker.lifecycle.loading import load_backend
from worker.lifecycle.prepared import prepare
from worker.model.config import load_config
from worker.model.overrides import RopeWish, Wishes
from worker.settings import Settings

ONE: dict[str, Any] = {"parallel": 1, "threads": 1, "ctx_size": 512}


def logits(path: Path, settings: Settings) -> np.ndarray:
    """Those behind a few tokens."""
    with load_backend(path, settings, prepare(path, settings)) as backend:
        batch = backend.batch
        batch.clear()
        row = batch.add(np.arange(5, 12), 0, 0) + 6
        batch.outputs[row] = 1
        backend.decode()
        return backend.logits(row).copy()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ggufs.write_llama(tmp_path_factory.mktemp("models") / "m.gguf", context=512)


def test_llama_cpp_computes_what_is_said(path: Path) -> None:
    """The file that says so, and the option, give the same; both another than the file."""
    plain = logits(path, Settings(**ONE))
    for one, other in (
        (Settings(rope_freq_base=500.0, **ONE), (("llama.rope.freq_base", 500.0),)),
        (
            Settings(rope_scaling="linear", rope_scale=4.0, **ONE),
            (("llama.rope.scaling.type", "linear"), ("llama.rope.scaling.factor", 4.0)),
        ),
    ):
        changed = logits(path, one)
        assert not np.allclose(changed, plain)
        assert np.array_equal(changed, logits(path, Settings(override_kv=other, **ONE)))
    yarn = Settings(rope_scaling="yarn", rope_scale=4.0, **ONE)
    assert not np.allclose(logits(path, yarn), plain)
    other = Settings(rope_scaling="yarn", rope_scale=4.0, yarn_ext_factor=0.0, **ONE)
    assert not np.allclose(logits(path, other), logits(path, yarn))


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        (RopeWish(factor=4.0), 2048),
        (RopeWish(scaling="yarn", factor=4.0, original=32_768), 131_072),
        (RopeWish(base=26_000.0, longest=1024), 1024),
        (RopeWish(base=26_000.0, longest=100), 512),
        (RopeWish(scaling="none"), 512),
    ],
)
def test_a_stretched_context_is_longer(path: Path, rope: RopeWish, context: int) -> None:
    """A sequence may be as long as the original context is stretched."""
    assert load_config(path, wishes=Wishes((), rope)).context == context


def test_what_is_said_is_checked_like_a_file(path: Path) -> None:
    """A key of another type, a key that says how the file is read, and a value that no file may
    have are refused."""

    def load(*keys: tuple[str, bool | int | float | str]) -> None:
        load_config(path, wishes=Wishes(keys))

    with pytest.raises(UsageError, match=r"llama.context_length as float, and the file as UINT32"):
        load(("llama.context_length", 1.0))
    with pytest.raises(UsageError, match="as int, and the file as ARRAY"):
        load(("tokenizer.ggml.tokens", 1))
    for key in ("general.architecture", "split.count"):
        with pytest.raises(UsageError, match=f"cannot change {key}"):
            load((key, "qwen2"))
    with pytest.raises(ModelFileError):
        load(("llama.block_count", 99))
    with pytest.raises(ModelFileError):
        load(("llama.rope.freq_base", -1.0))
    found = load_config(path, wishes=Wishes((("general.name", "another"),)))
    assert (found.name, found.overrides) == ("another", (("general.name", "another"),))
