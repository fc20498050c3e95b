"""Which files have heads that can guess: the key and the tensors decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models import ggufs
from tests.support.models.heads import OTHERS, WRITERS
from worker.errors import UsageError
from worker.gguf.reader import read_header
from worker.model.config import load_config
from worker.model.drafts import check_heads, why_no_heads


@pytest.mark.parametrize("name", [*WRITERS, *OTHERS])
def test_files_with_heads(name: str, tmp_path: Path) -> None:
    """They can, as long as all is there that llama.cpp's graph takes for granted."""
    path = (WRITERS | OTHERS)[name](tmp_path / "m.gguf")
    config = load_config(path)
    assert why_no_heads(config) is None
    check_heads(config)
    assert f"blk.{config.layers - 1}.nextn.eh_proj.weight" in {
        tensor.name for tensor in read_header(path).tensors
    }


def test_without_the_tensors(tmp_path: Path) -> None:
    """Files exist that keep the key and leave the tensors out."""
    path = WRITERS["qwen35"](tmp_path / "m.gguf", without=("blk.4.nextn.enorm.weight",))
    with pytest.raises(UsageError, match=r"no tensor blk\.4\.nextn\.enorm\.weight") as caught:
        check_heads(load_config(path))
    assert caught.value.hint is not None


def test_attention_that_heads_do_not_follow(tmp_path: Path) -> None:
    """llama.cpp ends the process on a head of a model with temperature scaling."""
    keys = {"attention.temperature_scale": 0.1, "attention.temperature_length": 8192}
    path = OTHERS["deepseek2"](tmp_path / "m.gguf", keys=keys)
    assert why_no_heads(load_config(path)) == (
        "its attention is scaled by position, and that of heads is not"
    )


def test_others(tmp_path: Path) -> None:
    """A plain model has none; heads of an architecture that is not known are not touched."""
    plain = load_config(ggufs.write_llama(tmp_path / "plain.gguf"))
    assert why_no_heads(plain) == "the file has no heads for it"
    gguf = ggufs.llama_gguf(layers=3)
    gguf.keys["llama.nextn_predict_layers"] = ggufs.u32(1)
    other = load_config(gguf.write(tmp_path / "other.gguf"))
    assert why_no_heads(other) == "heads of llama models are not supported"
