"""Writes tiny random models of the architectures whose caches differ, as small GGUF files.

    plain attention     qwen2, qwen3, mixtral (llama with experts), deepseek2 (MLA)
    sliding window      gemma3 (every third layer sees all), gemma3-array (which do is an array)
    recurrent           mamba, rwkv7
    recurrent + plain   lfm2 (short convolutions), granitehybrid (Mamba-2)
    recurrent + window  lfm2-window

What a model says is noise, but it depends on every token that it may look at: the embedding is
small beside what the layers add to it, and queries and keys are large, so that attention picks
a few tokens and does not average over all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.support.models.ggufs import (
    BOOL,
    CHAT_TEMPLATE,
    U32,
    Gguf,
    Key,
    Raw,
    Tensor,
    array,
    f32,
    spm_vocabulary,
    text,
    u32,
)

WIDTH = 64
INNER = 96
HEADS = 4
KV_HEADS = 2
HEAD = WIDTH // HEADS
CONTEXT = 2048
WINDOW = 16
VOCABULARY = 320

_EMBEDDING_SCALE = 0.3
_SHARPNESS = 2.0  # of queries and keys
_EXPERTS = 4
_INNER_STATE = 2 * WIDTH  # the only expansion that llama.cpp supports for Mamba
_STATE = 8
_KERNEL = 4
_RANK = 8


class Model:
    """A file under construction; its weights follow from the architecture's name."""

    def __init__(self, architecture: str, *, layers: int, heads: bool = True) -> None:
        """Keys that every architecture has; with `heads`, also those of attention."""
        self.architecture = architecture
        self._rng = np.random.default_rng(list(architecture.encode()))
        self.gguf = Gguf(
            keys={
                "general.architecture": text(architecture),
                "general.type": text("model"),
                "general.name": text(f"tiny {architecture}"),
                "general.file_type": u32(0),
                "tokenizer.chat_template": text(CHAT_TEMPLATE),
                **spm_vocabulary(VOCABULARY),
            }
        )
        self.keys(
            block_count=layers,
            context_length=CONTEXT,
            embedding_length=WIDTH,
            feed_forward_length=INNER,
            vocab_size=VOCABULARY,
        )
        self.keys({"attention.layer_norm_rms_epsilon": 1e-5})
        if heads:
            self.keys(
                {
                    "attention.head_count": HEADS,
                    "attention.head_count_kv": KV_HEADS,
                    "rope.dimension_count": HEAD,
                    "rope.freq_base": 10000.0,
                }
            )
        self.normal("token_embd.weight", WIDTH, VOCABULARY, scale=_EMBEDDING_SCALE)

    def keys(
        self, named: dict[str, int | float | Key | Raw] | None = None, **more: int | float
    ) -> None:
        """Set keys of the architecture: UINT32 for an int, FLOAT32 for a float."""
        for name, value in {**(named or {}), **more}.items():
            if isinstance(value, int | float):
                value = u32(value) if isinstance(value, int) else f32(value)
            self.gguf.keys[f"{self.architecture}.{name}"] = value

    def values(self, name: str, shape: tuple[int, ...], values: np.ndarray) -> None:
        """A tensor of these values."""
        self.gguf.tensors.append(Tensor(name, shape, 0, values.astype("<f4").tobytes()))

    def normal(self, name: str, *shape: int, scale: float = 1.0, mean: float = 0.0) -> None:
        """A tensor of normal values around `mean`."""
        count = int(np.prod(shape))
        self.values(name, shape, mean + scale * self._rng.standard_normal(count))

    def matrix(self, name: str, *shape: int, scale: float = 1.0) -> None:
        """A matrix that leaves a vector's length about as it is, times `scale`."""
        self.normal(name, *shape, scale=scale / float(np.sqrt(shape[0])))

    def norm(self, name: str, *shape: int) -> None:
        """The weights of a norm, all near 1."""
        self.normal(name, *shape, scale=0.1, mean=1.0)

    def attention(
        self, prefix: str, *, biases: bool = False, norms: bool = False, heads: int = HEADS
    ) -> None:
        """Grouped-query attention; `norms` are those of queries and keys."""
        # Where queries and keys are normed the norms' weights decide how sharp attention is.
        sharp = 1.0 if norms else _SHARPNESS
        rows = {"q": HEAD * heads, "k": HEAD * KV_HEADS, "v": HEAD * KV_HEADS}
        for part, count in rows.items():
            self.matrix(
                f"{prefix}attn_{part}.weight", WIDTH, count, scale=1 if part == "v" else sharp
            )
            if biases:
                self.normal(f"{prefix}attn_{part}.bias", count, scale=0.1)
            if norms and part != "v":
                self.normal(f"{prefix}attn_{part}_norm.weight", HEAD, scale=0.1, mean=_SHARPNESS)
        self.matrix(f"{prefix}attn_output.weight", HEAD * heads, WIDTH)

    def feed_forward(self, prefix: str) -> None:
        """A gated feed-forward layer and the norm before it."""
        self.norm(f"{prefix}ffn_norm.weight", WIDTH)
        self.matrix(f"{prefix}ffn_gate.weight", WIDTH, INNER)
        self.matrix(f"{prefix}ffn_up.weight", WIDTH, INNER)
        self.matrix(f"{prefix}ffn_down.weight", INNER, WIDTH)

    def experts(self, prefix: str, suffix: str = "exps") -> None:
        """A mixture of experts, or with the suffix `shexp` the expert that all tokens pass."""
        count = () if suffix == "shexp" else (_EXPERTS,)
        if count:
            self.norm(f"{prefix}ffn_norm.weight", WIDTH)
            # A large router keeps its choice clear of rounding.
            self.matrix(f"{prefix}ffn_gate_inp.weight", WIDTH, _EXPERTS, scale=4.0)
        self.matrix(f"{prefix}ffn_gate_{suffix}.weight", WIDTH, INNER, *count)
        self.matrix(f"{prefix}ffn_up_{suffix}.weight", WIDTH, INNER, *count)
        self.matrix(f"{prefix}ffn_down_{suffix}.weight", INNER, WIDTH, *count)

    def write(self, path: Path, output_norm: str = "output_norm") -> Path:
        """Add the output layer and write the file; returns `path`."""
        self.norm(f"{output_norm}.weight", WIDTH)
        self.matrix("output.weight", WIDTH, VOCABULARY)
        return self.gguf.write(path)


def _prefixes(model: Model, layers: int) -> list[str]:
    """Names of the blocks, each of which has a norm in front of what mixes its tokens."""
    prefixes = [f"blk.{layer}." for layer in range(layers)]
    for prefix in prefixes:
        model.norm(f"{prefix}attn_norm.weight", WIDTH)
    return prefixes


def write_qwen2(path: Path) -> Path:
    """Plain attention with biases."""
    model = Model("qwen2", layers=2)
    for prefix in _prefixes(model, 2):
        model.attention(prefix, biases=True)
        model.feed_forward(prefix)
    return model.write(path)


def write_qwen3(path: Path) -> Path:
    """Plain attention with norms of queries and keys."""
    model = Model("qwen3", layers=2)
    model.keys({"attention.key_length": HEAD, "attention.value_length": HEAD})
    for prefix in _prefixes(model, 2):
        model.attention(prefix, norms=True)
        model.feed_forward(prefix)
    return model.write(path)


def write_k2_horizon(path: Path) -> Path:
    """Of an architecture that the pinned llama.cpp does not have."""
    model = Model("k2-horizon", layers=2)
    for prefix in _prefixes(model, 2):
        model.attention(prefix)
        model.feed_forward(prefix)
    return model.write(path)


def write_mixtral(path: Path) -> Path:
    """A Llama with four experts, two of which see each token."""
    model = Model("llama", layers=2)
    model.keys(expert_count=_EXPERTS, expert_used_count=2)
    for prefix in _prefixes(model, 2):
        model.attention(prefix)
        model.experts(prefix)
    return model.write(path)


def write_deepseek2(path: Path) -> Path:
    """Multi-head latent attention: one dense layer, then one with experts and a shared one."""
    rank, rotated, plain, value = 32, 8, 16, 16
    model = Model("deepseek2", layers=2)
    model.keys(
        {
            "leading_dense_block_count": 1,
            "attention.head_count_kv": 1,
            "attention.q_lora_rank": rank,
            "attention.kv_lora_rank": rank,
            "attention.key_length": rank + rotated,
            "attention.value_length": rank,
            "attention.key_length_mla": plain + rotated,
            "attention.value_length_mla": value,
            "rope.dimension_count": rotated,
            "expert_count": _EXPERTS,
            "expert_used_count": 2,
            "expert_shared_count": 1,
            "expert_feed_forward_length": INNER,
            "expert_weights_scale": 1.0,
        }
    )
    for prefix in _prefixes(model, 2):
        model.matrix(f"{prefix}attn_q_a.weight", WIDTH, rank)
        model.norm(f"{prefix}attn_q_a_norm.weight", rank)
        model.matrix(f"{prefix}attn_q_b.weight", rank, HEADS * (plain + rotated), scale=_SHARPNESS)
        model.matrix(f"{prefix}attn_kv_a_mqa.weight", WIDTH, rank + rotated)
        model.norm(f"{prefix}attn_kv_a_norm.weight", rank)
        model.matrix(f"{prefix}attn_k_b.weight", plain, rank, HEADS, scale=_SHARPNESS)
        model.matrix(f"{prefix}attn_v_b.weight", rank, value, HEADS)
        model.matrix(f"{prefix}attn_output.weight", HEADS * value, WIDTH)
        if prefix == "blk.0.":
            model.feed_forward(prefix)
        else:
            model.experts(prefix)
            model.experts(prefix, "shexp")
    return model.write(path)


def _write_gemma3(path: Path, pattern: Key) -> Path:
    layers = 3
    model = Model("gemma3", layers=layers)
    model.keys(
        {
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "attention.sliding_window": WINDOW,
            "attention.sliding_window_pattern": pattern,
            "rope.freq_base_swa": 1000.0,
        }
    )
    for prefix in _prefixes(model, layers):
        model.attention(prefix, norms=True)
        model.norm(f"{prefix}post_attention_norm.weight", WIDTH)
        model.feed_forward(prefix)
        model.norm(f"{prefix}post_ffw_norm.weight", WIDTH)
    return model.write(path)


def write_gemma3(path: Path) -> Path:
    """Two layers that see the last 16 tokens, then one that sees all."""
    return _write_gemma3(path, u32(3))


def write_gemma3_array(path: Path) -> Path:
    """As `write_gemma3`, but the file says layer by layer which have a window."""
    return _write_gemma3(path, array(BOOL, [0, 1, 1]))


def write_mamba(path: Path) -> Path:
    """Mamba: a convolution and a state-space layer, no attention."""
    model = Model("mamba", layers=2, heads=False)
    model.keys({"feed_forward_length": 0, "attention.head_count": 0})
    model.keys(
        {
            "ssm.conv_kernel": _KERNEL,
            "ssm.inner_size": _INNER_STATE,
            "ssm.state_size": _STATE,
            "ssm.time_step_rank": _RANK,
        }
    )
    decay = -np.tile(np.arange(1, _STATE + 1) / 32, _INNER_STATE)
    for prefix in _prefixes(model, 2):
        model.matrix(f"{prefix}ssm_in.weight", WIDTH, 2 * _INNER_STATE, scale=2.0)
        model.matrix(f"{prefix}ssm_conv1d.weight", _KERNEL, _INNER_STATE, scale=2.0)
        model.normal(f"{prefix}ssm_conv1d.bias", _INNER_STATE, scale=0.1)
        model.matrix(f"{prefix}ssm_x.weight", _INNER_STATE, _RANK + 2 * _STATE, scale=2.0)
        model.matrix(f"{prefix}ssm_dt.weight", _RANK, _INNER_STATE)
        model.normal(f"{prefix}ssm_dt.bias", _INNER_STATE, scale=0.5, mean=-1.0)
        model.values(f"{prefix}ssm_a", (_STATE, _INNER_STATE), decay)
        model.normal(f"{prefix}ssm_d", _INNER_STATE)
        model.matrix(f"{prefix}ssm_out.weight", _INNER_STATE, WIDTH)
    return model.write(path)


def write_rwkv7(path: Path) -> Path:
    """RWKV-7: token shift and a matrix-valued state, no attention."""
    model = Model("rwkv7", layers=2, heads=False)
    model.keys(
        {
            "attention.head_count": 0,
            "attention.layer_norm_epsilon": 1e-5,
            "wkv.head_size": WIDTH,  # native code reads 64 values at a time
            "token_shift_count": 2,
            **{f"attention.{part}_lora_rank": _RANK for part in
               ("decay", "iclr", "value_residual_mix", "gate")},
        }
    )  # fmt: skip

    def layer_norm(name: str) -> None:
        model.norm(f"{name}.weight", WIDTH)
        model.normal(f"{name}.bias", WIDTH, scale=0.1)

    layer_norm("token_embd_norm")
    for prefix in _prefixes(model, 2):
        model.normal(f"{prefix}attn_norm.bias", WIDTH, scale=0.1)
        layer_norm(f"{prefix}attn_norm_2")
        mix = f"{prefix}time_mix_"
        for part in ("w", "a", "v", "g"):
            if part != "g":
                model.normal(f"{mix}{part}0.weight", WIDTH)
            model.matrix(f"{mix}{part}1.weight", WIDTH, _RANK)
            model.matrix(f"{mix}{part}2.weight", _RANK, WIDTH)
        model.normal(f"{mix}lerp_fused.weight", WIDTH, 1, 1, 6, scale=0.2, mean=0.5)
        for part in ("k_k", "k_a", "r_k"):
            model.normal(f"{mix}{part}.weight", WIDTH, scale=0.2, mean=0.8)
        for part in ("key", "value", "receptance", "output"):
            model.matrix(f"{mix}{part}.weight", WIDTH, WIDTH)
        layer_norm(f"{mix}ln")
        model.normal(f"{prefix}channel_mix_lerp_k.weight", WIDTH, 1, 1, scale=0.2, mean=0.5)
        model.matrix(f"{prefix}channel_mix_key.weight", WIDTH, INNER)
        model.matrix(f"{prefix}channel_mix_value.weight", INNER, WIDTH)
    model.normal("output_norm.bias", WIDTH, scale=0.1)
    return model.write(path)


def _write_lfm2(path: Path, window: int) -> Path:
    kv_heads = [0, KV_HEADS, 0, KV_HEADS]
    model = Model("lfm2", layers=len(kv_heads))
    model.keys({"attention.head_count_kv": array(U32, kv_heads), "shortconv.l_cache": _KERNEL})
    if window:
        model.keys({"attention.sliding_window": window})
    for prefix, heads in zip(_prefixes(model, len(kv_heads)), kv_heads, strict=True):
        if heads:
            model.attention(prefix, norms=True)
        else:
            model.matrix(f"{prefix}shortconv.conv.weight", _KERNEL, WIDTH)
            model.matrix(f"{prefix}shortconv.in_proj.weight", WIDTH, 3 * WIDTH)
            model.matrix(f"{prefix}shortconv.out_proj.weight", WIDTH, WIDTH)
        model.feed_forward(prefix)
    return model.write(path, output_norm="token_embd_norm")


def write_lfm2(path: Path) -> Path:
    """Short convolutions and attention in turn."""
    return _write_lfm2(path, 0)


def write_lfm2_window(path: Path) -> Path:
    """As `write_lfm2`, with attention to the last 16 tokens only."""
    return _write_lfm2(path, WINDOW)


def write_granitehybrid(path: Path) -> Path:
    """A Mamba-2 layer, then one with attention, twice."""
    kv_heads = [0, KV_HEADS, 0, KV_HEADS]
    groups, ssm_heads = 1, 8
    mixed = _INNER_STATE + 2 * groups * _STATE
    model = Model("granitehybrid", layers=len(kv_heads))
    model.keys(
        {
            "attention.head_count_kv": array(U32, kv_heads),
            "ssm.conv_kernel": _KERNEL,
            "ssm.inner_size": _INNER_STATE,
            "ssm.state_size": _STATE,
            "ssm.time_step_rank": ssm_heads,
            "ssm.group_count": groups,
        }
    )
    for prefix, heads in zip(_prefixes(model, len(kv_heads)), kv_heads, strict=True):
        if heads:
            model.attention(prefix)
        else:
            model.matrix(f"{prefix}ssm_in.weight", WIDTH, _INNER_STATE + mixed + ssm_heads)
            model.matrix(f"{prefix}ssm_conv1d.weight", _KERNEL, mixed, scale=2.0)
            model.normal(f"{prefix}ssm_conv1d.bias", mixed, scale=0.1)
            model.normal(f"{prefix}ssm_dt.bias", ssm_heads, scale=0.5, mean=-1.0)
            model.values(f"{prefix}ssm_a", (1, ssm_heads), -np.arange(1, ssm_heads + 1) / 8)
            model.normal(f"{prefix}ssm_d", 1, ssm_heads)
            model.norm(f"{prefix}ssm_norm.weight", _INNER_STATE // groups, groups)
            model.matrix(f"{prefix}ssm_out.weight", _INNER_STATE, WIDTH)
        model.feed_forward(prefix)
    return model.write(path)


WRITERS: dict[str, Callable[[Path], Path]] = {
    "qwen2": write_qwen2,
    "qwen3": write_qwen3,
    "mixtral": write_mixtral,
    "deepseek2": write_deepseek2,
    "gemma3": write_gemma3,
    "gemma3-array": write_gemma3_array,
    "mamba": write_mamba,
    "rwkv7": write_rwkv7,
    "lfm2": write_lfm2,
    "lfm2-window": write_lfm2_window,
    "granitehybrid": write_granitehybrid,
}
