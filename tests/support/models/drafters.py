"""Writes tiny drafters that read hidden states, and models for them, whose tokens go on as those of
`heads` do: after n comes n + 1, if the layers add nothing (`noise`).

An EAGLE-3 drafter looks at its own token and says the next one; what it reads of the model stands
beside that, and is wrong as often as the model leaves the line. So does a Gemma 4 assistant, which
looks at the model's cells besides.

Each row of a DFlash drafter looks at the token a block before its own, whose embedding it has from
the model, and says which one follows there on the line. So each guess is of its own position.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.models.architectures import (
    HEAD,
    HEADS,
    INNER,
    VOCABULARY,
    WIDTH,
    WINDOW,
    Model,
)
from tests.support.models.ggufs import BOOL, I32, Key, Tensor, array, u32
from tests.support.models.heads import attention, feed_forward, line
from worker.gguf.quant import ENCODINGS

LAYERS = 3
_PAIRS = 4
_I64 = next(number for number, each in ENCODINGS.items() if each.name == "I64")
# Tokens of a drafter's own vocabulary: all but every eighth.
OWN = np.array([token for token in range(VOCABULARY) if token % 8])


def write_target(
    path: Path, *, noise: float = 1.2, architecture: str = "llama", marked: bool = False
) -> Path:
    """Plain layers. marked: see `line`"""
    model = Model(architecture, layers=LAYERS)
    for layer in range(LAYERS):
        prefix = f"blk.{layer}."
        model.norm(f"{prefix}attn_norm.weight", WIDTH)
        model.norm(f"{prefix}ffn_norm.weight", WIDTH)
        attention(model, prefix, noise, queries=HEAD * HEADS)
        feed_forward(model, prefix, noise)
        if architecture == "qwen3":
            model.norm(f"{prefix}attn_q_norm.weight", HEAD)
            model.norm(f"{prefix}attn_k_norm.weight", HEAD)
    _, embedding, output = line(marked=marked)
    model.gguf.drop("token_embd.weight")
    model.values("token_embd.weight", (WIDTH, VOCABULARY), embedding)
    model.values("output.weight", (WIDTH, VOCABULARY), output)
    model.norm("output_norm.weight", WIDTH)
    return model.gguf.write(path)


def eagle(
    *,
    own: bool = False,
    table: bool = False,
    layers: tuple[int, ...] = (0, 1, LAYERS - 1),
    width: int = WIDTH,
) -> Model:
    """A drafter as a file under construction.

    own    with embeddings and an output layer of its own; else the model's
    table  and with a smaller vocabulary
    layers, width  whose inputs of the model it reads, and elements of each
    """
    model = Model("eagle3", layers=1)
    model.gguf.drop("token_embd.weight")
    model.keys(
        {
            "target_layers": array(I32, list(layers)),
            "target_hidden_size": width,
            "attention.head_count_kv": HEADS,
            "norm_before_residual": Key(BOOL, 1),
        }
    )
    draw = np.random.default_rng(8)
    _, embedding, output = line()
    eye, nothing = np.eye(WIDTH), np.zeros((WIDTH, WIDTH))
    fused = [0.1 * draw.standard_normal((WIDTH, width)) / np.sqrt(width) for _ in layers]
    fused[-1][:, :WIDTH] += 0.3 * eye[:, :width]
    queries = 2 * draw.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)
    ones = np.ones(WIDTH)
    named = {
        "fc": np.concatenate(fused, axis=1),
        "blk.0.attn_q": np.concatenate([queries, nothing], axis=1),
        "blk.0.attn_k": np.concatenate([queries, nothing], axis=1),
        "blk.0.attn_v": np.concatenate([eye, nothing], axis=1),
        "blk.0.attn_output": 2.5 * eye,
        "blk.0.attn_norm": ones,
        "blk.0.attn_norm_2": ones,
        "blk.0.ffn_norm": ones,
        "output_norm": ones,
    }
    if own or table:
        named |= {"token_embd": embedding, "output": output[OWN] if table else output}
    for name, values in named.items():
        model.values(f"{name}.weight", values.shape[::-1], values)
    if table:
        model.gguf.tensors.append(Tensor("d2t", OWN.shape, _I64, OWN.astype("<i8").tobytes()))
    feed_forward(model, "blk.0.", 1.0)
    return model


def dflash(
    *,
    own: bool = False,
    table: bool = False,
    layers: tuple[int, ...] = (0, 1, LAYERS - 1),
    block: int = 6,
    window: int = 0,
    sections: bool = False,
) -> Model:
    """A drafter as a file under construction, for a marked model.

    own     with embeddings and an output layer of its own; else the model's
    table   and with a smaller vocabulary
    layers  whose inputs of the model it reads
    block   rows of a guess, of which the first is known
    window, sections  of its attention, and of its positions (M-RoPE)
    """
    model = Model("dflash", layers=1)
    model.gguf.drop("token_embd.weight")
    model.gguf.keys["tokenizer.ggml.mask_token_id"] = u32(VOCABULARY - 1)
    model.keys(
        {
            "target_layers": array(I32, list(layers)),
            "block_size": block,
            "attention.head_count_kv": HEADS,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "attention.causal": Key(BOOL, 0),
        }
    )
    if window:
        model.keys({"attention.sliding_window": window})
        model.keys({"attention.sliding_window_pattern": array(BOOL, [1])})
    if sections:
        model.keys({"rope.dimension_sections": array(I32, [HEAD // 2, 0, 0, 0])})
    draw = np.random.default_rng(9)
    rotation, embedding, output = line(marked=True)
    nothing, ones = np.zeros((WIDTH, WIDTH)), np.ones(WIDTH)
    fused = [0.02 * draw.standard_normal((WIDTH, WIDTH)) for _ in layers]
    fused[0] += np.eye(WIDTH)
    # Of a head's pairs of elements the first ones turn fast. A query is turned back by a block, so
    # that it finds what stands there; only the mark goes into queries and keys.
    pairs = np.arange(_PAIRS)
    turned = block * 10000.0 ** (-2 * pairs / HEAD)
    queries, keys = nothing.copy(), nothing.copy()
    for head in range(HEADS):
        queries[head * HEAD + pairs, 0] = np.cos(turned)
        queries[head * HEAD + HEAD // 2 + pairs, 0] = -np.sin(turned)
        keys[head * HEAD + pairs, 0] = 1
    values = np.eye(WIDTH)
    values[0, 0] = 0
    named = {
        "fc": np.concatenate(fused, axis=1),
        "enc.output_norm": ones,
        "blk.0.attn_q": queries,
        "blk.0.attn_k": keys,
        "blk.0.attn_v": values,
        "blk.0.attn_output": 4 * np.linalg.matrix_power(rotation, block - 1),
        "blk.0.attn_q_norm": np.full(HEAD, 14.0),
        "blk.0.attn_k_norm": np.ones(HEAD),
        "blk.0.attn_norm": ones,
        "blk.0.ffn_norm": ones,
        "output_norm": ones,
    }
    if own or table:
        named |= {"token_embd": embedding, "output": output[OWN] if table else output}
    for name, each in named.items():
        model.values(f"{name}.weight", each.shape[::-1], each)
    if table:
        model.gguf.tensors.append(Tensor("d2t", OWN.shape, _I64, OWN.astype("<i8").tobytes()))
    feed_forward(model, "blk.0.", 0.5)
    return model


def write_dflash(path: Path, **options: Any) -> Path:
    """The same, written."""
    return dflash(**options).gguf.write(path)


def write_eagle(path: Path, **options: Any) -> Path:
    """The same, written."""
    return eagle(**options).gguf.write(path)


def write_gemma4(path: Path, *, noise: float = 0.65, shared: int = 0) -> Path:
    """Two layers with a sliding window, each before one without, whose heads are longer and fewer.

    shared: layers at the end that look at cells of earlier ones
    """
    layers = 4
    model = Model("gemma4", layers=layers)
    _gemma_keys(model, [1, 0] * 2)
    model.keys({"embedding_length_per_layer_input": 0, "attention.shared_kv_layers": shared})
    for layer in range(layers):
        _gemma_layer(model, layer, WIDTH, noise, cells=layer < layers - shared)
    _, embedding, output = line()
    model.gguf.drop("token_embd.weight")
    model.values("token_embd.weight", (WIDTH, VOCABULARY), embedding / np.sqrt(WIDTH))
    model.values("output.weight", (WIDTH, VOCABULARY), output)
    model.norm("output_norm.weight", WIDTH)
    model.values("rope_freqs.weight", (HEAD,), np.ones(HEAD))
    return model.gguf.write(path)


def assistant(*, noise: float = 0.4, width: int = WIDTH, kv_heads: int = 2) -> Model:
    """An assistant of a `write_gemma4` as a file under construction: a layer of each kind.

    width, kv_heads  of the model's hidden states and of its cells with a window
    """
    rows = 2 * WIDTH
    model = Model("gemma4-assistant", layers=2)
    _gemma_keys(model, [1, 0], kv_heads)
    model.keys(embedding_length=rows, embedding_length_out=width, nextn_predict_layers=2)
    for layer in range(2):
        _gemma_layer(model, layer, rows, noise, cells=False)
        model.values(f"blk.{layer}.layer_output_scale.weight", (1,), np.ones(1))
    rotation, _, output = line()
    token, state = 0.5 * np.eye(WIDTH)[:, :width], rotation[:, :width]
    model.gguf.drop("token_embd.weight")
    named = {
        "token_embd": np.concatenate([output, np.zeros_like(output)], axis=1),
        "nextn.pre_projection": np.concatenate(
            [np.concatenate([token, 0 * token], axis=1), np.concatenate([0 * token, state], axis=1)]
        ),
        "nextn.post_projection": np.eye(WIDTH, rows)[:width],
        "output_norm": np.ones(rows),
        "rope_freqs": np.ones(HEAD),
    }
    for name, values in named.items():
        model.values(f"{name}.weight", values.shape[::-1], values)
    return model


def write_assistant(path: Path, **options: Any) -> Path:
    """The same, written."""
    return assistant(**options).gguf.write(path)


def _gemma_keys(model: Model, slides: list[int], kv_heads: int = 2) -> None:
    model.keys(
        {
            "attention.head_count_kv": array(I32, [kv_heads if each else 1 for each in slides]),
            "attention.key_length": 2 * HEAD,
            "attention.value_length": 2 * HEAD,
            "attention.key_length_swa": HEAD,
            "attention.value_length_swa": HEAD,
            "attention.sliding_window": WINDOW,
            "attention.sliding_window_pattern": array(BOOL, slides),
            "rope.dimension_count": 2 * HEAD,
            "rope.dimension_count_swa": HEAD,
            "rope.freq_base_swa": 1000.0,
        }
    )


def _gemma_layer(model: Model, layer: int, width: int, noise: float, *, cells: bool) -> None:
    """A layer of `width`; `noise` is what attention and feed-forward add to a row."""
    prefix, head, kv_heads = f"blk.{layer}.", (2 * HEAD, HEAD)[layer % 2 == 0], 2 - layer % 2
    model.norm(f"{prefix}attn_norm.weight", width)
    model.matrix(f"{prefix}attn_q.weight", width, head * HEADS)
    model.norm(f"{prefix}attn_q_norm.weight", head)
    if cells:
        model.matrix(f"{prefix}attn_k.weight", width, head * kv_heads)
        model.matrix(f"{prefix}attn_v.weight", width, head * kv_heads)
        model.norm(f"{prefix}attn_k_norm.weight", head)
    model.matrix(f"{prefix}attn_output.weight", head * HEADS, width)
    model.norm(f"{prefix}ffn_norm.weight", width)
    model.matrix(f"{prefix}ffn_gate.weight", width, INNER)
    model.matrix(f"{prefix}ffn_up.weight", width, INNER)
    model.matrix(f"{prefix}ffn_down.weight", INNER, width)
    for name in ("post_attention_norm", "post_ffw_norm"):
        model.normal(f"{prefix}{name}.weight", width, scale=0.1 * noise, mean=noise)
