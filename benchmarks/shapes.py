"""The sizes of well-known models."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The sizes of a model. `experts` 0 means dense; `window` 0 means full attention.

    `convolutions` are the layers that mix their tokens by a short convolution over
    `kernel` tokens; the others have attention.
    """

    architecture: str = "llama"
    layers: int
    embedding: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocab: int
    context: int
    tied: bool = False
    experts: int = 0
    experts_used: int = 0
    expert_feed_forward: int = 0
    window: int = 0
    convolutions: tuple[int, ...] = ()
    kernel: int = 0
    rope_base: float = 1e4


SHAPES: dict[str, ModelShape] = {
    "demo-5m": ModelShape(layers=6, embedding=256, heads=4, kv_heads=2, head_dim=64,
                          feed_forward=768, vocab=2048, context=1024, tied=True),
    "llama-20m": ModelShape(layers=8, embedding=384, heads=6, kv_heads=2, head_dim=64,
                            feed_forward=1024, vocab=8192, context=32768),
    "llama-125m": ModelShape(layers=12, embedding=768, heads=12, kv_heads=4, head_dim=64,
                             feed_forward=2048, vocab=32000, context=32768),
    "llama-125m-150k": ModelShape(layers=12, embedding=768, heads=12, kv_heads=4, head_dim=64,
                                  feed_forward=2048, vocab=150_000, context=32768),
    "llama-125m-262k": ModelShape(layers=12, embedding=768, heads=12, kv_heads=4, head_dim=64,
                                  feed_forward=2048, vocab=262_144, context=32768),
    "tinyllama-1.1b": ModelShape(layers=22, embedding=2048, heads=32, kv_heads=4, head_dim=64,
                                 feed_forward=5632, vocab=32000, context=2048),
    "llama-1b": ModelShape(layers=16, embedding=2048, heads=32, kv_heads=8, head_dim=64,
                           feed_forward=8192, vocab=128256, context=131072, tied=True),
    "llama3-8b": ModelShape(layers=32, embedding=4096, heads=32, kv_heads=8, head_dim=128,
                            feed_forward=14336, vocab=128256, context=131072, rope_base=5e5),
    "llama2-7b": ModelShape(layers=32, embedding=4096, heads=32, kv_heads=32, head_dim=128,
                            feed_forward=11008, vocab=32000, context=4096),
    "qwen2-0.5b": ModelShape(architecture="qwen2", layers=24, embedding=896, heads=14, kv_heads=2,
                             head_dim=64, feed_forward=4864, vocab=151936, context=32768,
                             tied=True),
    # Qwen2.5 0.5B, but of another architecture and with an output of its own.
    "reciting-0.5b": ModelShape(layers=24, embedding=896, heads=14, kv_heads=2, head_dim=64,
                                feed_forward=4864, vocab=151936, context=32768, rope_base=1e8),
    "qwen3-0.6b": ModelShape(architecture="qwen3", layers=28, embedding=1024, heads=16, kv_heads=8,
                             head_dim=128, feed_forward=3072, vocab=151936, context=40960,
                             tied=True),
    "moe-small": ModelShape(architecture="qwen3moe", layers=8, embedding=1024, heads=16, kv_heads=4,
                            head_dim=64, feed_forward=3072, vocab=32000, context=8192, experts=16,
                            experts_used=4, expert_feed_forward=768),
    "gemma3-270m": ModelShape(architecture="gemma3", layers=18, embedding=640, heads=4, kv_heads=1,
                              head_dim=256, feed_forward=2048, vocab=262144, context=32768,
                              tied=True, window=512),
    "gemma3-1b": ModelShape(architecture="gemma3", layers=26, embedding=1152, heads=4, kv_heads=1,
                            head_dim=256, feed_forward=6912, vocab=262144, context=32768, tied=True,
                            window=512),
    "lfm2-350m": ModelShape(architecture="lfm2", layers=16, embedding=1024, heads=16, kv_heads=8,
                            head_dim=64, feed_forward=4608, vocab=65536, context=32768, tied=True,
                            convolutions=(0, 1, 3, 4, 6, 7, 9, 11, 13, 15), kernel=3),
}  # fmt: skip
