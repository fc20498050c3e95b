"""The typed config: shapes, defaults, tokenizer, sampling, card."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.cases import for_each
from tests.support.models import ggufs
from tests.support.models.ggufs import (
    BOOL,
    F32,
    I32,
    STR,
    Gguf,
    Key,
    array,
    f32,
    llama_gguf,
    text,
    u32,
)
from tests.support.models.native import LOADED, Judge, judge
from worker.errors import ModelFileError
from worker.llama.library import native
from worker.model.architectures import DRAFTERS, ENCODER_DECODERS, ENCODERS, KNOWN
from worker.model.config import ModelConfig, load_config
from worker.model.tokenizer import PRE_TOKENIZERS, TokenizerConfig

VOCABS = sorted((Path(__file__).parents[2] / "../shared/vocabs").resolve().glob("*.gguf"))
needs_vocabs = pytest.mark.skipif(not VOCABS, reason="the folder ../shared/vocabs is missing")
VOCAB_PARAMS = [pytest.param(path, id=path.stem) for path in VOCABS] or [
    pytest.param(None, id="none")
]
# Published shapes: layers, embedding, heads, KV heads, feed-forward, context.
SHAPES = {
    "7B": (32, 4096, 32, 32, 11008, 4096),
    "8B": (32, 4096, 32, 8, 14336, 131072),
    "13B": (40, 5120, 40, 40, 13824, 4096),
    "70B": (80, 8192, 64, 8, 28672, 8192),
}


@pytest.fixture(scope="module")
def native_judge() -> Generator[Judge]:
    """A child process with llama.cpp."""
    with judge() as child:
        yield child


def config_of(model: Gguf, path: Path, **options: Any) -> ModelConfig:
    """The config of a file written to the folder `path`."""
    return load_config(model.write(path / "model.gguf"), **options)


def tokenizer_of(model: Gguf, path: Path) -> TokenizerConfig:
    """Its tokenizer."""
    tokenizer = config_of(model, path).tokenizer
    assert tokenizer is not None
    return tokenizer


def test_a_llama(tmp_path: Path) -> None:
    """Each size of a plain Llama is the one in its file; absent keys have their defaults."""
    config = config_of(llama_gguf(layers=3, heads=8, kv_heads=2), tmp_path)
    assert (config.architecture, config.kind, config.layers) == ("llama", "decoder", 3)
    assert (config.embedding, config.context, config.vocab_size) == (64, 512, 320)
    assert config.heads == (8, 8, 8)
    assert config.kv_heads == (2, 2, 2)
    assert (config.max_heads, config.max_kv_heads) == (8, 2)
    assert config.feed_forward == (128,) * 3
    assert (config.key_length, config.value_length) == (8, 8)
    assert (config.rope.dimensions, config.rope.freq_base) == (8, 10000.0)
    assert (config.rope.scaling, config.rope.factor) == ("none", 1.0)
    assert config.rope.original_context == 512
    assert (config.experts, config.recurrent, config.sliding_window) == (None, None, 0)
    assert config.causal
    assert config.norm_epsilon == pytest.approx(1e-5)
    per_layer = 64 + 64 * 64 + 2 * 64 * 16 + 64 * 64 + 64 + 3 * 64 * 128
    assert config.n_params == 2 * 64 * 320 + 64 + 3 * per_layer
    assert config.size_bytes == config.n_params * 4
    assert config.bits_per_weight == 32.0
    assert config.quant == "F32"
    assert config.files[0].size == (tmp_path / "model.gguf").stat().st_size


@pytest.mark.parametrize("name", SHAPES)
def test_published_shapes_are_read(name: str, tmp_path: Path) -> None:
    """The shapes of 7B to 70B models come from their files; nothing of a shape is assumed."""
    layers, embedding, heads, kv_heads, inner, context = SHAPES[name]
    model = ggufs.vocab_gguf()
    for key, value in {
        "block_count": layers, "embedding_length": embedding, "feed_forward_length": inner,
        "attention.head_count": heads, "attention.head_count_kv": kv_heads,
        "context_length": context, "rope.dimension_count": embedding // heads,
    }.items():  # fmt: skip
        model.keys[f"llama.{key}"] = u32(value)
    config = config_of(model, tmp_path, purpose="inspect")
    assert config.kind == "vocabulary"
    assert config.heads == (heads,) * layers
    assert config.kv_heads == (kv_heads,) * layers
    assert (config.key_length, config.context) == (128, context)
    assert config.feed_forward == (inner,) * layers


def test_values_by_layer(tmp_path: Path) -> None:
    """Hybrid models have arrays by layer, with zeros where a layer has no attention."""
    model = ggufs.vocab_gguf(architecture="granitehybrid")
    for key, value in {
        "block_count": u32(4), "embedding_length": u32(64),
        "attention.head_count": u32(8), "attention.head_count_kv": array(I32, [0, 0, 2, 0]),
        "feed_forward_length": array(I32, [128, 0, 64, 32]), "ssm.conv_kernel": u32(4),
        "ssm.inner_size": u32(128), "ssm.state_size": u32(16), "ssm.time_step_rank": u32(8),
        "ssm.group_count": u32(1),
    }.items():  # fmt: skip
        model.keys[f"granitehybrid.{key}"] = value
    config = config_of(model, tmp_path, purpose="inspect")
    assert config.kv_heads == (0, 0, 2, 0)
    assert config.max_kv_heads == 2
    assert config.feed_forward == (128, 0, 64, 32)
    assert config.recurrent is not None
    assert (config.recurrent.conv_kernel, config.recurrent.state_size) == (4, 16)


def test_a_recurrent_model_has_no_heads(tmp_path: Path) -> None:
    """Without head counts, as in Mamba, heads and their lengths are 0."""
    model = ggufs.vocab_gguf(architecture="mamba")
    model.drop("mamba.attention.head_count", "mamba.attention.head_count_kv")
    config = config_of(model, tmp_path, purpose="inspect")
    assert (config.heads, config.kv_heads) == ((0,), (0,))
    assert (config.key_length, config.rope.dimensions) == (0, 0)


def test_sliding_window_latent_attention_and_rope(tmp_path: Path) -> None:
    """Windows with their pattern, MLA lengths and rope scaling come from the file."""
    model = ggufs.vocab_gguf(architecture="gemma4")
    for key, value in {
        "block_count": u32(2), "attention.sliding_window": u32(1024),
        "attention.sliding_window_pattern": array(BOOL, [1, 0]),
        "attention.key_length": u32(512), "attention.value_length": u32(256),
        "attention.key_length_swa": u32(128), "attention.kv_lora_rank": u32(512),
        "attention.key_length_mla": u32(192), "rope.scaling.type": text("yarn"),
        "rope.scaling.factor": f32(4.0), "rope.scaling.original_context_length": u32(128),
        "rope.dimension_count": u32(64), "rope.dimension_sections": array(I32, [1, 2, 3, 0]),
    }.items():  # fmt: skip
        model.keys[f"gemma4.{key}"] = value
    config = config_of(model, tmp_path, purpose="inspect")
    assert (config.sliding_window, config.sliding_pattern) == (1024, (1, 0))
    assert (config.key_length, config.value_length) == (512, 256)
    assert (config.key_length_swa, config.value_length_swa) == (128, 256)
    assert (config.kv_lora_rank, config.key_length_mla) == (512, 192)
    assert (config.rope.scaling, config.rope.factor) == ("yarn", 4.0)
    assert (config.rope.original_context, config.rope.dimensions) == (128, 64)
    assert config.rope.sections == (1, 2, 3, 0)


def test_experts(tmp_path: Path) -> None:
    """A mixture of experts says how many there are and how many a token passes."""
    experts = config_of(llama_gguf(experts=4, experts_used=2), tmp_path).experts
    assert experts is not None
    assert (experts.count, experts.max_used, experts.used) == (4, 2, (2, 2))


def test_card_sampling_and_names(tmp_path: Path) -> None:
    """The card, the recommended sampling and the texts about a model are handed on."""
    model = llama_gguf()
    model.keys |= {
        "worker.card.corpus": text("stories"), "worker.card.loss": f32(1.5),
        "worker.card.steps": u32(900), "general.description": text("A tiny one."),
        "general.license": text("mit"), "general.sampling.temp": f32(0.5),
        "general.sampling.top_k": Key(I32, 20), "general.sampling.sequence": text("kpt"),
        "general.size_label": text("5M"),
    }  # fmt: skip
    config = config_of(model, tmp_path)
    assert config.card == {"corpus": "stories", "loss": 1.5, "steps": 900}
    assert (config.name, config.description, config.license) == ("tiny", "A tiny one.", "mit")
    assert (config.sampling.temperature, config.sampling.top_k) == (0.5, 20)
    assert (config.sampling.sequence, config.sampling.top_p) == ("kpt", None)
    assert config.size_label == "5M"


def test_the_config_is_frozen_and_plain(tmp_path: Path) -> None:
    """A config cannot be changed and survives a round trip through JSON."""
    config = config_of(llama_gguf(experts=4), tmp_path)
    with pytest.raises(AttributeError):
        config.layers = 3  # pyright: ignore[reportAttributeAccessIssue]
    assert msgspec.json.decode(msgspec.json.encode(config), type=ModelConfig) == config


def test_chat_templates(tmp_path: Path) -> None:
    """The default template and the named ones are told apart; a missing one is None."""
    model = llama_gguf()
    model.keys["tokenizer.chat_template.tool_Use"] = text("T")
    tokenizer = tokenizer_of(model, tmp_path)
    assert tokenizer.chat_template == ggufs.CHAT_TEMPLATE
    assert tokenizer.chat_templates == {"tool_Use": "T"}
    assert tokenizer_of(llama_gguf(chat_template=None), tmp_path).chat_template is None


def native_tokenizer(path: Path) -> dict[str, object]:
    """What llama.cpp itself settles on for the vocabulary at `path`."""
    options = native.llama_model_default_params()
    options.vocab_only = True
    model = native.llama_model_load_from_file(str(path).encode(), options)
    assert model is not None
    vocab = native.llama_model_get_vocab(model)
    assert vocab is not None
    size = native.llama_vocab_n_tokens(vocab)
    roles = ("bos", "eos", "eot", "sep", "pad", "mask", "fim_pre", "fim_suf", "fim_mid",
             "fim_pad", "fim_rep", "fim_sep")  # fmt: skip
    ids = {role: int(getattr(native, f"llama_vocab_{role}")(vocab)) for role in roles}
    found: dict[str, object] = {
        "vocab_size": size,
        "eog_ids": tuple(i for i in range(size) if native.llama_vocab_is_eog(vocab, i)),
        **{f"{role}_id": None if index < 0 else index for role, index in ids.items()},
        **{
            f"add_{role}": bool(getattr(native, f"llama_vocab_get_add_{role}")(vocab))
            for role in ("bos", "eos", "sep")
        },
    }
    native.llama_model_free(model)
    return found


def assert_as_native(path: Path, alike: tuple[str, ...] = ()) -> None:
    """Our tokenizer config says what llama.cpp says.

    Of several texts that stand for an id llama.cpp takes the first in its hash table: an id in
    `alike` only has to be one where llama.cpp has one, and to end a generation.
    """
    tokenizer = load_config(path, purpose="inspect").tokenizer
    assert tokenizer is not None
    theirs = native_tokenizer(path)
    for name in alike:
        index, their = getattr(tokenizer, name), theirs.pop(name)
        assert (index is None) == (their is None)
        assert index is None or index in tokenizer.eog_ids
    assert {name: getattr(tokenizer, name) for name in theirs} == theirs


@needs_vocabs
@pytest.mark.parametrize("path", VOCAB_PARAMS)
def test_special_tokens_of_published_vocabularies(path: Path) -> None:
    """Ids, added tokens and all end-of-generation ids are llama.cpp's, over every token."""
    assert_as_native(path)


@needs_vocabs
@pytest.mark.parametrize("path", VOCAB_PARAMS)
def test_published_vocabularies_are_no_models(path: Path) -> None:
    """A vocabulary file is read for inspection and refused, by name, for generation."""
    assert load_config(path, purpose="inspect").kind == "vocabulary"
    with pytest.raises(ModelFileError) as caught:
        load_config(path)
    assert caught.value.code == "VOCAB_ONLY"


ENDS: dict[str, tuple[list[str], dict[str, ggufs.Key]]] = {
    "llama 3": (["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"], {}),
    "harmony": (["<|end|>", "<|return|>", "<|call|>"], {}),
    "solar": (["<|end|>", "<|flush|>", "<|calls|>"], {}),
    "calls without return": (["<|end|>", "<|call|>"], {}),
    "gemma 4": (["<eos>", "<turn|>", "<|tool_response>", "</s>"], {}),
    "plain </s>": (["</s>"], {}),
    "plamo": (["<|plamo:eos|>", "</s>"], {"tokenizer.ggml.eos_token_id": u32(300)}),
    "plamo, other eos": (["<|plamo:eos|>", "</s>"], {}),
    "fim": (["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>"], {}),
    "fim by key": (["a-pad", "a-rep"], {"tokenizer.ggml.fim_pad_token_id": u32(300),
                                        "tokenizer.ggml.fim_rep_token_id": u32(301)}),
    "deprecated key": (["xx"], {"tokenizer.ggml.prefix_token_id": u32(300)}),
    "id out of range": ([], {"tokenizer.ggml.eos_token_id": u32(5000),
                             "tokenizer.ggml.bos_token_id": u32(2**32 - 1)}),
    "eot by key": (["<|turn_end|>", "xx"], {"tokenizer.ggml.eot_token_id": u32(301)}),
    "add_eos": ([], {"tokenizer.ggml.add_eos_token": Key(BOOL, 1)}),
    "no keys": ([], {}),
}  # fmt: skip


@for_each("pre", ["gpt-2", "llama-bpe", "tekken", "glm4", "jina-v2-code", "default"])
@for_each("case", ENDS)
def test_special_tokens_by_text(case: str, pre: str, tmp_path: Path) -> None:
    """Tokens that end a generation by key, by text and by exception are llama.cpp's."""
    texts, keys = ENDS[case]
    model = ggufs.vocab_gguf("bpe", size=300)
    for key in ("bos_token_id", "eos_token_id", "add_bos_token"):
        if case == "no keys" or f"tokenizer.ggml.{key}" in keys:
            model.drop(f"tokenizer.ggml.{key}")
    old, kinds = model.keys["tokenizer.ggml.tokens"], model.keys["tokenizer.ggml.token_type"]
    assert isinstance(old, Key)
    assert isinstance(kinds, Key)
    model.keys |= {
        "tokenizer.ggml.tokens": array(STR, [*old.value, *texts]),
        "tokenizer.ggml.token_type": array(I32, [*kinds.value, *[3] * len(texts)]),
        "tokenizer.ggml.pre": text(pre),
        **keys,
    }
    model.drop("llama.vocab_size", "tokenizer.chat_template")
    assert_as_native(model.write(tmp_path / "v.gguf"), alike=("eot_id",))


def test_a_sentencepiece_model_without_keys(tmp_path: Path) -> None:
    """Without the keys a SentencePiece file has BOS 1, which is added, and EOS 2, which is not."""
    model = ggufs.vocab_gguf("spm")
    for key in ("bos_token_id", "eos_token_id", "unknown_token_id", "add_bos_token",
                "add_eos_token", "pre"):  # fmt: skip
        model.drop(f"tokenizer.ggml.{key}")
    assert_as_native(model.write(tmp_path / "v.gguf"))


@for_each("pre", sorted(PRE_TOKENIZERS))
def test_every_listed_pre_tokenizer_is_one(pre: str, tmp_path: Path, native_judge: Judge) -> None:
    """Each pre-tokenizer of our list is known to the pinned llama.cpp."""
    model = ggufs.vocab_gguf("bpe")
    model.keys["tokenizer.ggml.pre"] = text(pre)
    if pre == "whitespace":
        model.keys["tokenizer.ggml.model"] = text(pre)
    path = model.write(tmp_path / "v.gguf")
    assert native_judge.try_file(path, vocab_only=True) == LOADED
    assert load_config(path, purpose="inspect").vocab_size == 320


@for_each("arch", sorted(KNOWN - {"clip"}))
def test_every_listed_architecture_is_one(arch: str, tmp_path: Path, native_judge: Judge) -> None:
    """Each architecture of our list is known to the pinned llama.cpp, and read by us."""
    path = ggufs.vocab_gguf(architecture=arch).write(tmp_path / "v.gguf")
    assert native_judge.try_file(path, vocab_only=True) == LOADED
    assert load_config(path, purpose="inspect").architecture == arch


def test_an_unlisted_architecture_is_none(tmp_path: Path, native_judge: Judge) -> None:
    """A name that is not on our list is not known to the pinned llama.cpp either."""
    path = ggufs.vocab_gguf(architecture="llama9").write(tmp_path / "v.gguf")
    assert native_judge.try_file(path, vocab_only=True) != LOADED
    assert ENCODERS | ENCODER_DECODERS | DRAFTERS <= KNOWN


VARIANTS: dict[str, Gguf] = {
    "spm": llama_gguf(),
    "bpe": llama_gguf(vocab="bpe"),
    "tied": llama_gguf(tied=True),
    "experts": llama_gguf(experts=4),
    **{kind: llama_gguf(encoding=kind, layers=1) for kind in ("F16", "BF16", *ggufs.QUANTIZED)},
}


@for_each("name", VARIANTS)
def test_what_runs_is_accepted(name: str, tmp_path: Path, native_judge: Judge) -> None:
    """Every kind of small model that llama.cpp loads and runs passes the checks."""
    path = VARIANTS[name].write(tmp_path / "m.gguf")
    assert native_judge.try_file(path) == LOADED
    config = load_config(path)
    assert config.tokenizer is not None
    assert config.size_bytes < path.stat().st_size


def test_odd_but_sound_files_are_accepted(tmp_path: Path, native_judge: Judge) -> None:
    """A file with several oddities that llama.cpp accepts passes our checks too."""
    model = llama_gguf()
    model.keys |= {
        "llama.feed_forward_length": array(I32, [128, 128]),
        "llama.attention.head_count_kv": array(ggufs.U32, [2, 2]),
        "llama.attention.key_length": u32(16), "llama.attention.value_length": u32(16),
        "llama.rope.scaling.type": text("none"), "general.license": text(""),
        "tokenizer.ggml.scores": array(I32, list(range(320))),
        "tokenizer.ggml.unknown_token_id": u32(10_000),
        "general.alignment": u32(32), "split.count": Key(ggufs.U16, 1),
        "vendor.nan": f32(float("nan")), "vendor.empty": array(F32, []),
    }  # fmt: skip
    tokens = model.keys["tokenizer.ggml.tokens"]
    assert isinstance(tokens, Key)
    model.keys["tokenizer.ggml.tokens"] = array(STR, [*tokens.value[:318], "", b"\xff\xfe"])
    model.tensors.append(ggufs.Tensor("rope_freqs.weight", (8,), 0, b"\0\0\x80\x3f" * 8))
    model.drop("llama.vocab_size", "general.name", "general.type", "tokenizer.ggml.pre")
    path = model.write(tmp_path / "m.gguf")
    assert native_judge.try_file(path) == LOADED
    assert load_config(path).vocab_size == 320
