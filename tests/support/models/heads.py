"""Writes tiny models with a head that guesses (multi-token prediction), right as often as asked.

    glm4moe, deepseek2  plain and latent attention, with experts
    qwen35, qwen35moe   every fourth layer has attention, the others one recurrent state

The embedding of token n is R^n v, with a rotation R, and the output layer's row of token n is the
embedding of token n - 1. So without what the layers add, n is followed by n + 1. The head turns the
hidden state by R: from the state of n it says n + 2. What the layers add (`noise`) depends on all
tokens; so text leaves the line, and the head is wrong now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from tests.support.models.architectures import (
    HEAD,
    HEADS,
    INNER,
    KV_HEADS,
    VOCABULARY,
    WIDTH,
    Model,
)
from tests.support.models.ggufs import I32, array

FIRST = 3  # tokens before it are special ones
_EXPERTS = 4
_STATE = 16
_GROUPS, _RANK = 2, 4
_KERNEL = 4
_SHARP = 2.0  # of the output layer
_MARK = 3.0


def write_glm4moe(path: Path, *, noise: float = 0.7, without: tuple[str, ...] = ()) -> Path:
    """Two layers, the second with experts, and a head with experts."""
    model = Model("glm4moe", layers=3)
    model.keys(
        {
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "expert_count": _EXPERTS,
            "expert_used_count": 2,
            "expert_shared_count": 1,
            "expert_feed_forward_length": INNER,
            "leading_dense_block_count": 1,
            "expert_weights_scale": 1.0,
        }
    )
    for layer in range(3):
        prefix = f"blk.{layer}."
        model.norm(f"{prefix}attn_norm.weight", WIDTH)
        model.norm(f"{prefix}post_attention_norm.weight", WIDTH)
        attention(model, prefix, noise, queries=HEAD * HEADS)
        if not layer:
            feed_forward(model, prefix, noise)
            continue
        model.matrix(f"{prefix}ffn_gate_inp.weight", WIDTH, _EXPERTS, scale=4.0)
        model.values(f"{prefix}exp_probs_b.bias", (_EXPERTS,), np.zeros(_EXPERTS))
        feed_forward(model, prefix, noise, "_exps", _EXPERTS)
        feed_forward(model, prefix, noise, "_shexp")
    return _write(model, path, "blk.2.", without)


def write_qwen35(
    path: Path, *, noise: float = 0.8, without: tuple[str, ...] = (), marked: bool = False
) -> Path:
    """Three recurrent layers, one with attention, and a head. marked: see `line`"""
    model = _hybrid("qwen35", noise)
    for layer in range(5):
        feed_forward(model, f"blk.{layer}.", noise)
    return _write(model, path, "blk.4.", without, marked=marked)


def write_qwen35moe(path: Path, *, noise: float = 0.7, without: tuple[str, ...] = ()) -> Path:
    """The same with experts."""
    model = _hybrid("qwen35moe", noise)
    model.keys(
        expert_count=_EXPERTS,
        expert_used_count=2,
        expert_feed_forward_length=INNER,
        expert_shared_feed_forward_length=INNER,
    )
    for layer in range(5):
        prefix = f"blk.{layer}."
        model.matrix(f"{prefix}ffn_gate_inp.weight", WIDTH, _EXPERTS, scale=4.0)
        model.normal(f"{prefix}ffn_gate_inp_shexp.weight", WIDTH, scale=0.1)
        feed_forward(model, prefix, noise, "_exps", _EXPERTS)
        feed_forward(model, prefix, noise, "_shexp")
    return _write(model, path, "blk.4.", without)


def _hybrid(architecture: str, noise: float) -> Model:
    """What mixes the tokens in the five layers."""
    model = Model(architecture, layers=5)
    inner = _STATE * _RANK
    model.keys(
        {
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "rope.dimension_sections": array(I32, [3, 3, 2, 0]),
            "full_attention_interval": 4,
            "ssm.conv_kernel": _KERNEL,
            "ssm.inner_size": inner,
            "ssm.state_size": _STATE,
            "ssm.time_step_rank": _RANK,
            "ssm.group_count": _GROUPS,
        }
    )
    for layer in range(5):
        prefix = f"blk.{layer}."
        model.norm(f"{prefix}attn_norm.weight", WIDTH)
        model.norm(f"{prefix}post_attention_norm.weight", WIDTH)
        if layer < 3:
            mixed = 2 * _GROUPS * _STATE + inner
            model.matrix(f"{prefix}attn_qkv.weight", WIDTH, mixed)
            model.matrix(f"{prefix}attn_gate.weight", WIDTH, inner)
            model.normal(f"{prefix}ssm_conv1d.weight", _KERNEL, mixed, scale=0.5)
            model.normal(f"{prefix}ssm_dt.bias", _RANK, scale=0.3)
            model.normal(f"{prefix}ssm_a", _RANK, scale=0.1, mean=-0.5)
            model.matrix(f"{prefix}ssm_beta.weight", WIDTH, _RANK)
            model.matrix(f"{prefix}ssm_alpha.weight", WIDTH, _RANK)
            model.norm(f"{prefix}ssm_norm.weight", _STATE)
            model.matrix(f"{prefix}ssm_out.weight", inner, WIDTH, scale=noise)
        else:  # each head has a gate beside its queries
            attention(model, prefix, noise, queries=2 * HEAD * HEADS)
            model.norm(f"{prefix}attn_q_norm.weight", HEAD)
            model.norm(f"{prefix}attn_k_norm.weight", HEAD)
    return model


def write_deepseek2(
    path: Path,
    *,
    noise: float = 0.7,
    without: tuple[str, ...] = (),
    keys: Mapping[str, float] | None = None,
) -> Path:
    """Latent attention: a dense layer, one with experts, and a head with experts."""
    rank, rotated, plain = 32, 8, 16
    model = Model("deepseek2", layers=3)
    model.keys(
        {
            "leading_dense_block_count": 1,
            "attention.head_count_kv": 1,
            "attention.q_lora_rank": rank,
            "attention.kv_lora_rank": rank,
            "attention.key_length": rank + rotated,
            "attention.value_length": rank,
            "attention.key_length_mla": plain + rotated,
            "attention.value_length_mla": plain,
            "rope.dimension_count": rotated,
            "expert_count": _EXPERTS,
            "expert_used_count": 2,
            "expert_shared_count": 1,
            "expert_feed_forward_length": INNER,
            "expert_weights_scale": 1.0,
            **(keys or {}),
        }
    )
    for layer in range(3):
        prefix = f"blk.{layer}."
        model.norm(f"{prefix}attn_norm.weight", WIDTH)
        model.norm(f"{prefix}ffn_norm.weight", WIDTH)
        model.matrix(f"{prefix}attn_q_a.weight", WIDTH, rank)
        model.norm(f"{prefix}attn_q_a_norm.weight", rank)
        model.matrix(f"{prefix}attn_q_b.weight", rank, HEADS * (plain + rotated), scale=2)
        model.matrix(f"{prefix}attn_kv_a_mqa.weight", WIDTH, rank + rotated)
        model.norm(f"{prefix}attn_kv_a_norm.weight", rank)
        model.matrix(f"{prefix}attn_k_b.weight", plain, rank, HEADS, scale=2)
        model.matrix(f"{prefix}attn_v_b.weight", rank, plain, HEADS)
        model.matrix(f"{prefix}attn_output.weight", HEADS * plain, WIDTH, scale=noise)
        if not layer:
            feed_forward(model, prefix, noise)
            continue
        model.matrix(f"{prefix}ffn_gate_inp.weight", WIDTH, _EXPERTS, scale=4.0)
        feed_forward(model, prefix, noise, "_exps", _EXPERTS)
        feed_forward(model, prefix, noise, "_shexp")
    return _write(model, path, "blk.2.", without)


WRITERS: dict[str, Callable[..., Path]] = {"glm4moe": write_glm4moe, "qwen35": write_qwen35}
# Their caches are of the same kinds.
OTHERS: dict[str, Callable[..., Path]] = {
    "qwen35moe": write_qwen35moe,
    "deepseek2": write_deepseek2,
}


def attention(model: Model, prefix: str, noise: float, *, queries: int) -> None:
    for part, count in (("q", queries), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD)):
        model.matrix(f"{prefix}attn_{part}.weight", WIDTH, count, scale=1 if part == "v" else 2)
    model.matrix(f"{prefix}attn_output.weight", HEAD * HEADS, WIDTH, scale=noise)


def feed_forward(model: Model, prefix: str, noise: float, suffix: str = "", count: int = 0) -> None:
    more = (count,) if count else ()
    model.matrix(f"{prefix}ffn_gate{suffix}.weight", WIDTH, INNER, *more)
    model.matrix(f"{prefix}ffn_up{suffix}.weight", WIDTH, INNER, *more)
    model.matrix(f"{prefix}ffn_down{suffix}.weight", INNER, WIDTH, *more, scale=noise)


def line(*, marked: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rotation R, embeddings, and rows of the output layer.

    marked: the first element is the same in all embeddings
    """
    draw = np.random.default_rng(5)
    rotation, _ = np.linalg.qr(draw.standard_normal((WIDTH, WIDTH)))
    vector = draw.standard_normal(WIDTH)
    vector *= np.sqrt(WIDTH) / np.linalg.norm(vector)
    embedding = np.empty((VOCABULARY, WIDTH))
    for token in range(VOCABULARY):
        embedding[token] = vector
        vector = rotation @ vector
    output = np.zeros_like(embedding)
    output[FIRST + 1 :] = embedding[FIRST:-1]
    output[FIRST] = embedding[-1]
    if marked:
        embedding[:, 0] = _MARK
    return rotation, embedding, output * _SHARP / np.sqrt(WIDTH)


def _write(
    model: Model, path: Path, block: str, without: tuple[str, ...], *, marked: bool = False
) -> Path:
    """Add the head's own tensors, embeddings and the output layer, and write the file."""
    rotation, embedding, output = line(marked=marked)
    ones = np.ones(WIDTH)
    joined = np.concatenate([np.zeros_like(rotation), rotation], axis=1)
    model.gguf.drop("token_embd.weight")
    model.keys(nextn_predict_layers=1)
    for name, shape, values in (
        ("token_embd", (WIDTH, VOCABULARY), embedding),
        ("output", (WIDTH, VOCABULARY), output),
        ("output_norm", (WIDTH,), ones),
        (f"{block}nextn.eh_proj", (2 * WIDTH, WIDTH), joined),
        (f"{block}nextn.enorm", (WIDTH,), ones),
        (f"{block}nextn.hnorm", (WIDTH,), ones),
        (f"{block}nextn.shared_head_norm", (WIDTH,), ones),
    ):
        model.values(f"{name}.weight", shape, values)
    model.gguf.drop(*without)
    return model.gguf.write(path)
