"""The tensors of a model of a given shape, as llama.cpp names them."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.shapes import ModelShape

Tensor = tuple[str, tuple[int, ...]]


def tensors_of(shape: ModelShape) -> Iterator[Tensor]:
    """Names and sizes, rows first as numpy has it: (out, in)."""
    width = shape.embedding
    yield "token_embd.weight", (shape.vocab, width)
    # llama.cpp knows the last norm of LFM2 by this name.
    yield "token_embd_norm.weight" if shape.convolutions else "output_norm.weight", (width,)
    if not shape.tied:
        yield "output.weight", (shape.vocab, width)
    for i in range(shape.layers):
        block = f"blk.{i}."
        yield block + "attn_norm.weight", (width,)
        if i in shape.convolutions:
            yield block + "shortconv.conv.weight", (width, shape.kernel)
            yield block + "shortconv.in_proj.weight", (3 * width, width)
            yield block + "shortconv.out_proj.weight", (width, width)
        else:
            yield from _attention(block, shape)
        yield block + "ffn_norm.weight", (width,)
        yield from _feed_forward(block, shape)


def _attention(block: str, shape: ModelShape) -> Iterator[Tensor]:
    width, head = shape.embedding, shape.head_dim
    gemma = shape.architecture.startswith("gemma")
    for part, heads in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads)):
        yield f"{block}attn_{part}.weight", (heads * head, width)
        if shape.architecture == "qwen2":
            yield f"{block}attn_{part}.bias", (heads * head,)
    yield block + "attn_output.weight", (width, shape.heads * head)
    if gemma or shape.architecture.startswith(("qwen3", "lfm2")):
        yield block + "attn_q_norm.weight", (head,)
        yield block + "attn_k_norm.weight", (head,)
    if gemma:
        yield block + "post_attention_norm.weight", (width,)
        yield block + "post_ffw_norm.weight", (width,)


def _feed_forward(block: str, shape: ModelShape) -> Iterator[Tensor]:
    width = shape.embedding
    if shape.experts:
        count, inner = shape.experts, shape.expert_feed_forward
        yield block + "ffn_gate_inp.weight", (count, width)
        yield block + "ffn_gate_exps.weight", (count, inner, width)
        yield block + "ffn_up_exps.weight", (count, inner, width)
        yield block + "ffn_down_exps.weight", (count, width, inner)
    else:
        yield block + "ffn_gate.weight", (shape.feed_forward, width)
        yield block + "ffn_up.weight", (shape.feed_forward, width)
        yield block + "ffn_down.weight", (width, shape.feed_forward)
