"""Which models can guess tokens for which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.models import drafters, ggufs
from tests.support.models.architectures import WRITERS
from tests.support.models.ggufs import BOOL, array, u32
from tests.support.models.heads import write_qwen35
from worker.errors import UsageError
from worker.lifecycle.prepared import prepare
from worker.machine import Memory
from worker.memory.plan import estimate
from worker.model.config import load_config
from worker.model.drafts import load_draft_config
from worker.settings import Settings


def write(path: Path, changed: dict[str | bytes, Any] | None = None, **options: Any) -> Path:
    """A small Llama with some keys changed."""
    gguf = ggufs.llama_gguf(**options)
    gguf.keys.update(changed or {})
    return gguf.write(path)


def test_another_size_of_the_same_family(tmp_path: Path) -> None:
    """Other layers, widths and a few more tokens are no obstacle."""
    target = load_config(write(tmp_path / "target.gguf"))
    path = write(tmp_path / "draft.gguf", layers=1, embedding=32, vocab_size=330)
    assert load_draft_config(path, target).layers == 1


@pytest.mark.parametrize(
    ("options", "changed", "why"),
    [
        ({"vocab": "bpe"}, {}, "of type"),
        ({"vocab_size": 500}, {}, "500 and 320 tokens"),
        ({}, {"tokenizer.ggml.bos_token_id": ggufs.u32(2)}, "another BOS"),
    ],
)
def test_other_vocabularies(
    options: dict[str, Any], changed: dict[str | bytes, Any], why: str, tmp_path: Path
) -> None:
    """One sentence says what differs, and the next step is named."""
    target = load_config(write(tmp_path / "target.gguf"))
    path = write(tmp_path / "draft.gguf", changed, **options)
    with pytest.raises(UsageError, match=why) as caught:
        load_draft_config(path, target)
    assert "draft.gguf cannot draft tokens for target.gguf" in caught.value.message
    assert caught.value.hint is not None


def test_one_other_token(tmp_path: Path) -> None:
    """A single token with another text is enough, from the sixth on."""
    target = load_config(write(tmp_path / "target.gguf"))
    tokens = ggufs.spm_vocabulary()["tokenizer.ggml.tokens"]
    assert isinstance(tokens, ggufs.Key)
    changed = ggufs.array(ggufs.STR, [*tokens.value[:300], "other", *tokens.value[301:]])
    path = write(tmp_path / "draft.gguf", {"tokenizer.ggml.tokens": changed})
    with pytest.raises(UsageError, match="token 300 is not the same"):
        load_draft_config(path, target)


def test_states_that_cannot_be_cut(tmp_path: Path) -> None:
    """Neither side may keep one state for all tokens."""
    recurrent = WRITERS["mamba"](tmp_path / "mamba.gguf")
    llama = write(tmp_path / "llama.gguf")
    for target, draft in ((recurrent, llama), (llama, recurrent)):
        with pytest.raises(UsageError, match="cannot reject a draft token"):
            load_draft_config(draft, load_config(target))


@pytest.mark.parametrize("name", ["mamba", "granitehybrid", "lfm2-window"])
def test_no_guesses_from_its_text_either(name: str, tmp_path: Path) -> None:
    """Guesses that could not be verified are refused, not left out in silence."""
    path = WRITERS[name](tmp_path / "model.gguf")
    with pytest.raises(UsageError, match="cannot reject a draft token") as caught:
        prepare(path, Settings(draft="ngram"))
    assert "Leave --draft out." in str(caught.value.hint)


@pytest.mark.parametrize(
    ("options", "lfm2", "qwen35"),
    [
        ({}, 15, 0),
        ({"draft": "none"}, 0, 0),
        ({"draft": "ngram"}, 15, 3),
        ({"draft": "mtp"}, 3, 3),
        ({"draft": "ngram", "ubatch_size": 4}, 2, 2),
    ],
)
def test_states_kept(options: dict[str, Any], lfm2: int, qwen35: int, tmp_path: Path) -> None:
    """As many as may be guessed at once: many where a state is small, else only if asked for, and
    no more than llama.cpp computes in one part."""
    settings = Settings(**options)
    for path, kept in (
        (WRITERS["lfm2"](tmp_path / "lfm2.gguf"), lfm2),
        (write_qwen35(tmp_path / "qwen35.gguf"), qwen35),
        (WRITERS["lfm2-window"](tmp_path / "window.gguf"), 0),
        (write(tmp_path / "llama.gguf"), 0),
    ):
        room = Memory(total=1 << 40, available=1 << 40)
        assert estimate(load_config(path), settings, room).states_kept == kept


@pytest.mark.parametrize(
    ("options", "dropped", "why"),
    [
        ({"width": 32}, (), "hidden states of 32 elements, and the model's have 64"),
        ({"layers": (0, 1, 3)}, (), "it reads layer 3, and the model gives layers 0 to 2"),
        ({"layers": (0, 1)}, (), "it reads 2 layers"),
        ({}, ("fc.weight",), "it has no tensor fc.weight"),
        ({"table": True}, ("output.weight",), "a vocabulary of its own without an output layer"),
    ],
)
def test_a_drafter_of_another_model(
    options: dict[str, Any], dropped: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    """Native code would end the process; here both files are named, and what differs."""
    target = load_config(drafters.write_target(tmp_path / "target.gguf"))
    model = drafters.eagle(**options)
    model.gguf.drop(*dropped)
    with pytest.raises(UsageError, match=why) as caught:
        load_draft_config(model.gguf.write(tmp_path / "eagle.gguf"), target)
    assert "eagle.gguf cannot draft tokens for target.gguf" in caught.value.message
    assert "made for this model" in str(caught.value.hint)


def test_a_model_that_gives_no_hidden_states(tmp_path: Path) -> None:
    """Graphs of some architectures do not name what goes into their layers."""
    target = load_config(WRITERS["qwen2"](tmp_path / "target.gguf"))
    with pytest.raises(UsageError, match="gives no hidden states of qwen2 models"):
        load_draft_config(drafters.write_eagle(tmp_path / "eagle.gguf"), target)


@pytest.mark.parametrize("changed", [{}, {"tokenizer.ggml.mask_token_id": u32(3)}])
def test_a_dflash_drafter(changed: dict[str | bytes, Any], tmp_path: Path) -> None:
    """The file says how long a block is, and which token stands for what is guessed."""
    target = load_config(drafters.write_target(tmp_path / "target.gguf"))
    model = drafters.dflash(block=8)
    model.gguf.keys.update(changed)
    draft = load_draft_config(model.gguf.write(tmp_path / "dflash.gguf"), target)
    assert (draft.block_size, draft.target_layers, draft.target_width) == (8, (0, 1, 2), 64)
    assert draft.tokenizer is not None
    assert draft.tokenizer.mask_id == (3 if changed else 319)


@pytest.mark.parametrize(
    ("options", "changed", "dropped", "why"),
    [
        ({"layers": (0, 3)}, {}, (), "it reads layer 3, and the model gives layers 0 to 2"),
        ({}, {"dflash.target_layers": None}, (), "it does not say which layers it reads"),
        ({"block": 1}, {}, (), "its blocks have 1 row, and one is known"),
        ({}, {"tokenizer.ggml.mask_token_id": None}, (), "its vocabulary has no mask token"),
        ({}, {"dflash.attention.value_length": u32(8)}, (), "its keys have 16 elements and its va"),
        ({}, {}, ("fc.weight",), "it has no tensor fc.weight"),
        ({}, {}, ("blk.0.attn_q_norm.weight",), "it has no tensor blk.0.attn_q_norm.weight"),
        ({"table": True}, {}, ("output.weight",), "a vocabulary of its own without an output"),
        ({"extra": "markov_w1"}, {}, (), "it is a DSpark file, which is not supported"),
        ({"extra": "selector_hidden"}, {}, (), "it is a DFlash 2 file, which is not supported"),
    ],
)
def test_a_dflash_drafter_of_another_model(
    options: dict[str, Any],
    changed: dict[str, Any],
    dropped: tuple[str, ...],
    why: str,
    tmp_path: Path,
) -> None:
    """Native code would end the process or guess otherwise; here both files are named."""
    target = load_config(drafters.write_target(tmp_path / "target.gguf"))
    model = drafters.dflash(**{k: v for k, v in options.items() if k != "extra"})
    for key, value in changed.items():
        model.gguf.keys[key] = value
        if value is None:
            del model.gguf.keys[key]
    if "extra" in options:
        model.normal(f"{options['extra']}.weight", 64, 64)
    model.gguf.drop(*dropped)
    with pytest.raises(UsageError, match=why) as caught:
        load_draft_config(model.gguf.write(tmp_path / "dflash.gguf"), target)
    assert "dflash.gguf cannot draft tokens for target.gguf" in caught.value.message
    assert "made for this model" in str(caught.value.hint)


def test_a_dflash_drafter_of_another_width(tmp_path: Path) -> None:
    """What it reads of the model is as wide as its own rows."""
    target = load_config(write(tmp_path / "target.gguf", embedding=32))
    with pytest.raises(UsageError, match="states of 64 elements, and the model's have 32"):
        load_draft_config(drafters.write_dflash(tmp_path / "d.gguf", layers=(0, 1)), target)


@pytest.mark.parametrize("shared", [0, 2])
def test_an_assistant(shared: int, tmp_path: Path) -> None:
    """It fits a model whose last layers have its cells, or look at earlier ones that have."""
    target = load_config(drafters.write_gemma4(tmp_path / "target.gguf", shared=shared))
    draft = load_draft_config(drafters.write_assistant(tmp_path / "assistant.gguf"), target)
    assert (draft.target_width, draft.target_layers) == (target.embedding, ())


def test_an_assistant_rotates_as_its_model(tmp_path: Path) -> None:
    """Where options stretch the model's positions, they stretch those of what reads its cells."""
    assistant = drafters.write_assistant(tmp_path / "assistant.gguf")
    target = drafters.write_gemma4(tmp_path / "target.gguf")
    settings = Settings(draft_model=str(assistant), rope_scaling="yarn", rope_scale=4.0)
    prepared = prepare(target, settings)
    assert prepared.draft is not None
    assert prepared.draft.rope == prepared.config.rope
    assert prepared.draft.rope.factor == 4
    assert dict(prepared.draft.overrides)["gemma4-assistant.rope.scaling.factor"] == 4


@pytest.mark.parametrize(
    ("options", "keys", "dropped", "why"),
    [
        ({"width": 32}, {}, (), "hidden states of 32 elements, and the model's have 64"),
        ({"kv_heads": 1}, {}, (), "its layer 0 reads 1 keys of 16 elements in a cell, and .* 2 of"),
        ({}, {"attention.key_length": 64}, (), "its layer 1 reads 1 keys of 64 elements"),
        ({}, {"nextn_predict_layers": 1}, (), "1 of its 2 layers draft tokens"),
        ({}, {"embedding_length": 64}, (), "its rows are as long as the model's"),
        ({}, {"attention.sliding_window_pattern": array(BOOL, [0, 0])}, (), "none of its layers"),
        ({}, {}, ("nextn.pre_projection.weight",), "no tensor nextn.pre_projection.weight"),
        ({}, {}, ("blk.1.layer_output_scale.weight",), "no tensor blk.1.layer_output_scale"),
    ],
)
def test_an_assistant_of_another_model(
    options: dict[str, Any],
    keys: dict[str, Any],
    dropped: tuple[str, ...],
    why: str,
    tmp_path: Path,
) -> None:
    """Native code would read other cells or end the process; here both files are named."""
    target = load_config(drafters.write_gemma4(tmp_path / "target.gguf"))
    model = drafters.assistant(**options)
    model.keys(keys)
    model.gguf.drop(*dropped)
    with pytest.raises(UsageError, match=why) as caught:
        load_draft_config(model.gguf.write(tmp_path / "assistant.gguf"), target)
    assert "assistant.gguf cannot draft tokens for target.gguf" in caught.value.message
    assert "made for this model" in str(caught.value.hint)


def test_an_assistant_of_a_model_without_its_layers(tmp_path: Path) -> None:
    """Only Gemma 4 shows its cells, and its last two layers must be of the two kinds."""
    path = drafters.write_assistant(tmp_path / "assistant.gguf")
    other = load_config(drafters.write_target(tmp_path / "other.gguf"))
    with pytest.raises(UsageError, match="cells of gemma4 models, and this is a llama model"):
        load_draft_config(path, other)
    target = load_config(drafters.write_gemma4(tmp_path / "target.gguf"))
    swapped = replace(target, sliding_pattern=(1, 0, 0, 1))
    with pytest.raises(UsageError, match="layer 2 of the model, which is without a sliding window"):
        load_draft_config(path, swapped)


@pytest.mark.parametrize("kind", ["eagle", "assistant", "dflash"])
def test_a_cut_file(kind: str, tmp_path: Path) -> None:
    """It names the model too, and what is wrong with the file."""
    target = load_config(drafters.write_target(tmp_path / "target.gguf"))
    path = getattr(drafters, f"write_{kind}")(tmp_path / "draft.gguf")
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(UsageError, match=r"draft.gguf cannot draft tokens for target.gguf: "):
        load_draft_config(path, target)
