"""The network: a Llama decoder. Its tensors have the names and the layout that GGUF wants."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """The sizes of the network."""

    vocab: int = 2048
    embedding: int = 256
    feed_forward: int = 768
    blocks: int = 6
    heads: int = 4
    kv_heads: int = 2
    context: int = 2048
    rope_base: float = 10000.0
    norm_epsilon: float = 1e-5

    @property
    def head(self) -> int:
        """Width of one attention head."""
        return self.embedding // self.heads

    def text(self) -> str:
        """Describe the shape in one line."""
        return (
            f"llama: {self.blocks} blocks, embedding {self.embedding}, feed-forward "
            f"{self.feed_forward}, {self.heads} heads ({self.kv_heads} for keys and values) of "
            f"{self.head}, vocabulary {self.vocab}, context {self.context}, tied embeddings"
        )


def rope_tables(length: int, shape: Shape) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the angles, each [length, head / 2]."""
    rate = shape.rope_base ** (-torch.arange(0, shape.head, 2).float() / shape.head)
    angle = torch.outer(torch.arange(length).float(), rate)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (0,1), (2,3).. of x [batch, time, heads, head]: llama.cpp's own layout.

    With this layout the query and key matrices need no permutation on their way into GGUF.
    """
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Block(nn.Module):
    """Attention, then feed-forward: each reads the normed stream and adds to the stream."""

    def __init__(self, shape: Shape) -> None:
        """Create the weights; those of the two matrices that add to the stream start smaller."""
        super().__init__()
        self.shape = shape
        n, kv, ff = shape.embedding, shape.kv_heads * shape.head, shape.feed_forward
        self.attn_norm = nn.Parameter(torch.ones(n))
        self.attn_q, self.attn_k = linear(n, n), linear(n, kv)
        self.attn_v, self.attn_output = linear(n, kv), linear(n, n, 1 / (2 * shape.blocks) ** 0.5)
        self.ffn_norm = nn.Parameter(torch.ones(n))
        self.ffn_gate, self.ffn_up = linear(n, ff), linear(n, ff)
        self.ffn_down = linear(ff, n, 1 / (2 * shape.blocks) ** 0.5)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the stream [batch, time, embedding] after this block."""
        s = self.shape
        batch, time, _ = x.shape
        h = functional.rms_norm(x, (s.embedding,), self.attn_norm, s.norm_epsilon)
        q = rotate(self.attn_q(h).view(batch, time, s.heads, s.head), cos, sin)
        k = rotate(self.attn_k(h).view(batch, time, s.kv_heads, s.head), cos, sin)
        v = self.attn_v(h).view(batch, time, s.kv_heads, s.head)
        repeat = s.heads // s.kv_heads
        k, v = k.repeat_interleave(repeat, 2), v.repeat_interleave(repeat, 2)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_output(a.transpose(1, 2).reshape(batch, time, s.embedding))
        h = functional.rms_norm(x, (s.embedding,), self.ffn_norm, s.norm_epsilon)
        return x + self.ffn_down(functional.silu(self.ffn_gate(h)) * self.ffn_up(h))


class DemoModel(nn.Module):
    """Token ids to logits; the embedding matrix is the output matrix too."""

    def __init__(self, shape: Shape) -> None:
        """Create the weights from torch's current random state."""
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocab, shape.embedding)
        nn.init.normal_(self.token_embd.weight, std=0.02)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.blocks))
        self.output_norm = nn.Parameter(torch.ones(shape.embedding))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits [batch, time, vocab] of the ids [batch, time]."""
        cos, sin = rope_tables(ids.shape[1], self.shape)
        x = self.token_embd(ids)
        for block in self.blk:
            x = block(x, cos, sin)
        width = (self.shape.embedding,)
        x = functional.rms_norm(x, width, self.output_norm, self.shape.norm_epsilon)
        return functional.linear(x, self.token_embd.weight)


def linear(rows: int, columns: int, scale: float = 1.0) -> nn.Linear:
    """Return a matrix from ``rows`` inputs to ``columns`` outputs without a bias."""
    layer = nn.Linear(rows, columns, bias=False)
    nn.init.normal_(layer.weight, std=scale * rows**-0.5)
    return layer


def parameter_count(model: nn.Module) -> int:
    """Return the number of weights."""
    return sum(p.numel() for p in model.parameters())
