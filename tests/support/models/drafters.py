"""Writes tiny drafters that read hidden states, and models for them, whose tokens go on as those of
`heads` do: after n comes n + 1, if the layers add nothing (`noise`).

An EAGLE-3 drafter looks at its own token and says the next one; what it reads of the model stands
beside that, and is wrong as often as the model leaves the line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.models.architectures import HEAD, HEADS, VOCABULARY, WIDTH, Model
from tests.support.models.ggufs import BOOL, I32, Key, Tensor, array
from tests.support.models.heads import attention, feed_forward, line
from worker.gguf.quant import ENCODINGS

LAYERS = 3
_I64 = next(number for number, each in ENCODINGS.items() if each.name == "I64")
# Tokens of a drafter's own vocabulary: all but every eighth.
OWN = np.array([token for token in range(VOCABULARY) if token % 8])


def write_target(path: Path, *, noise: float = 1.2, architecture: str = "llama") -> Path:
    """Plain layers."""
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
    _, embedding, output = line()
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


def write_eagle(path: Path, **options: Any) -> Path:
    """The same, written."""
    return eagle(**options).gguf.write(path)
