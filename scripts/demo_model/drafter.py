"""An EAGLE-3 drafter of the demo model: one decoder layer that reads what goes into three of the
model's. Its tensors have the names and the layout that GGUF wants.

Y. Li et al., EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time
Test, 2025.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from scripts.demo_model.model import DemoModel, Shape, linear, rope_tables, rotate


class DrafterLayer(nn.Module):
    """A decoder layer whose attention reads a token's embedding beside a hidden state."""

    def __init__(self, shape: Shape) -> None:
        """Create the weights; those of the two matrices that add to the stream start smaller."""
        super().__init__()
        n, kv, ff = shape.embedding, shape.kv_heads * shape.head, shape.feed_forward
        self.attn_norm, self.attn_norm_2 = ones(n), ones(n)
        self.attn_q, self.attn_k = linear(2 * n, n), linear(2 * n, kv)
        self.attn_v, self.attn_output = linear(2 * n, kv), linear(n, n, 0.5)
        self.ffn_norm = ones(n)
        self.ffn_gate, self.ffn_up = linear(n, ff), linear(n, ff)
        self.ffn_down = linear(ff, n, 0.5)


class DemoDrafter(nn.Module):
    """Hidden states of the model and tokens to logits; embeddings and output are the model's."""

    def __init__(self, target: DemoModel, layers: tuple[int, ...]) -> None:
        """Create the weights from torch's current random state; `layers` are those that it reads.

        It begins with the state of the last of them, and the model's last norm.
        """
        super().__init__()
        self.shape, self.layers = target.shape, layers
        n = self.shape.embedding
        self.fc = linear(len(layers) * n, n, 0.1)
        with torch.no_grad():
            self.fc.weight[:, -n:] += torch.eye(n)
        self.blk = nn.ModuleList([DrafterLayer(self.shape)])
        self.output_norm = nn.Parameter(target.output_norm.detach().clone())

    def read(self, target: DemoModel, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return what goes into the layers, [batch, time, layers x embedding], and the logits."""
        cos, sin = rope_tables(ids.shape[1], self.shape)
        x, found = target.token_embd(ids), list[Tensor]()
        for number, block in enumerate(target.blk):
            if number in self.layers:
                found.append(x)
            x = block(x, cos, sin)
        x = self.norm(x, target.output_norm)
        return torch.cat(found, -1), functional.linear(x, target.token_embd.weight)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the normed stream."""
        weight = weight.to(x.dtype)
        return functional.rms_norm(x, (self.shape.embedding,), weight, self.shape.norm_epsilon)

    def forward(self, read: Tensor, embedded: Tensor, output: Tensor, depth: int) -> list[Tensor]:
        """Return the logits of `depth` guesses in a row, each [batch, time, vocab].

        At time p it has the state of token p and reads token p + 1, whose embedding is
        `embedded[:, p]`; the logits are of token p + 2. From the second guess on the state is its
        own, of the guess before, and so are the keys and values of as many last times. The first
        `depth - 1` times of such guesses have no such state, and mean nothing.
        """
        s, layer = self.shape, self.blk[0]
        batch, time, _ = embedded.shape
        cos, sin = rope_tables(time, s)
        state, words = self.fc(read), self.norm(embedded, layer.attn_norm)
        keys, values, found = list[Tensor](), list[Tensor](), list[Tensor]()
        ahead = torch.arange(time)[:, None] - torch.arange(time)
        for guess in range(depth):
            x = torch.cat((words, self.norm(state, layer.attn_norm_2)), -1)
            q = rotate(layer.attn_q(x).view(batch, time, s.heads, s.head), cos, sin)
            k = rotate(layer.attn_k(x).view(batch, time, s.kv_heads, s.head), cos, sin)
            v = layer.attn_v(x).view(batch, time, s.kv_heads, s.head)
            repeat = s.heads // s.kv_heads
            keys.append(k.repeat_interleave(repeat, 2).transpose(1, 2))
            values.append(v.repeat_interleave(repeat, 2).transpose(1, 2))
            q = q.transpose(1, 2) * s.head**-0.5
            scores = (q @ keys[0].mT).masked_fill(ahead < guess, float("-inf"))
            own = [
                (q * shift(keys[n], guess - n, 2)).sum(-1, keepdim=True)
                for n in range(1, guess + 1)
            ]
            weights = torch.cat((scores, *own), -1).softmax(-1)
            a = weights[..., :time].nan_to_num() @ values[0]
            for n in range(1, guess + 1):
                here = weights[..., time + n - 1 : time + n]
                a = a + here * shift(values[n], guess - n, 2)
            x = state + layer.attn_output(a.transpose(1, 2).reshape(batch, time, s.embedding))
            h = self.norm(x, layer.ffn_norm)
            x = x + layer.ffn_down(functional.silu(layer.ffn_gate(h)) * layer.ffn_up(h))
            found.append(functional.linear(self.norm(x, self.output_norm), output))
            state = shift(x, 1, 1)
        return found


def ones(size: int) -> nn.Parameter:
    """Return the weight of a norm."""
    return nn.Parameter(torch.ones(size))


def shift(x: Tensor, by: int, axis: int) -> Tensor:
    """Move along the axis of time; the first ones are zeros."""
    if not by:
        return x
    kept = x.narrow(axis, 0, x.shape[axis] - by)
    return torch.cat((torch.zeros_like(x.narrow(axis, 0, by)), kept), axis)
