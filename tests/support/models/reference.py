"""What the right answer is, in plain numpy: the Llama architecture and every sampler filter.

Nothing here shares code with the worker: weights come through `gguf.GGUFReader` and
`gguf.quants.dequantize`, and the arithmetic is written from the definitions. With dequantised
weights this is the answer for exact activations; llama.cpp rounds activations to the type that a
weight's dot product wants (F16, Q8_0, Q8_K) and keys and values to the type of the cache, so
`tests/proof.py` states a tolerance for each file type.

Letters in shapes: n rows of this call, m positions so far, d embedding width, v vocabulary,
k key/value heads, g query heads per key/value head, e width of one head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader
from gguf.quants import dequantize

Floats = npt.NDArray[np.floating[Any]]

BLOCK_TENSORS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


@dataclass(frozen=True)
class Checkpoints:
    """Where the two computations are compared.

    embedding: [n, d], the rows of the token embedding
    blocks:    layer number -> [n, d], the residual stream after that block
    logits:    [n, v]
    """

    embedding: Floats
    blocks: Mapping[int, Floats]
    logits: Floats


@dataclass
class Cache:
    """Keys (rotated) and values per layer, each [m, k, e]; empty before the first call."""

    keys: dict[int, Floats] = field(default_factory=dict[int, Floats])
    values: dict[int, Floats] = field(default_factory=dict[int, Floats])

    def __len__(self) -> int:
        """Positions held."""
        return len(self.keys.get(0, ()))


class ReferenceLlama:
    """The forward pass of one GGUF file of architecture `llama`.

    RMSNorm (Zhang & Sennrich 2019), rotary embedding on neighbouring pairs (Su et al. 2021;
    llama.cpp's NORM type), grouped-query attention (Ainslie et al. 2023), SwiGLU (Shazeer 2020).
    Matrix products run in `dtype`, norms, angles and softmax in float64.
    A file that needs anything else raises ValueError instead of giving a plausible answer.
    """

    def __init__(self, path: Path, dtype: type[np.float32 | np.float64] = np.float32) -> None:
        reader = GGUFReader(path)

        def get(key: str, default: Any = None) -> Any:
            found = reader.get_field(key)
            return default if found is None else found.contents()

        if get("general.architecture") != "llama":
            raise ValueError(f"not a Llama file: {get('general.architecture')}")
        scaling = get("llama.rope.scaling.type", "linear")
        if scaling not in ("none", "linear"):
            raise ValueError(f"unsupported rope scaling: {scaling}")
        self.n_layer = int(get("llama.block_count"))
        self.n_head = int(get("llama.attention.head_count"))
        self.n_head_kv = int(get("llama.attention.head_count_kv", self.n_head))
        width = int(get("llama.embedding_length"))
        self.head_width = int(get("llama.attention.key_length", width // self.n_head))
        self.norm_eps = float(get("llama.attention.layer_norm_rms_epsilon"))
        self.dtype = dtype
        self.weights: dict[str, Floats] = {
            t.name: dequantize(t.data, t.tensor_type).astype(self.dtype) for t in reader.tensors
        }
        self._refuse_unknown_tensors()
        n_rot = int(get("llama.rope.dimension_count", self.head_width))
        if n_rot != self.head_width:
            raise ValueError(f"rotates {n_rot} of {self.head_width} values per head")
        base = float(get("llama.rope.freq_base", 10_000.0))
        scale = float(get("llama.rope.scaling.factor", 0.0)) if scaling == "linear" else 0.0
        factors = self.weights.get("rope_freqs.weight", np.ones(n_rot // 2))
        #: radians per position for each pair, [e/2]
        self.frequencies = base ** (-np.arange(0, n_rot, 2) / n_rot) / ((scale or 1.0) * factors)

    def _refuse_unknown_tensors(self) -> None:
        known = {"token_embd.weight", "output_norm.weight", "output.weight", "rope_freqs.weight"}
        for layer in range(self.n_layer):
            known |= {f"blk.{layer}.{name}.weight" for name in ("attn_norm", "ffn_norm")}
            known |= {
                f"blk.{layer}.{n}.{part}" for n in BLOCK_TENSORS for part in ("weight", "bias")
            }
        if unknown := sorted(self.weights.keys() - known):
            raise ValueError(f"tensors without a meaning here: {unknown}")

    def forward(self, tokens: Sequence[int], cache: Cache | None = None) -> Checkpoints:
        """The checkpoints of `tokens`, which follow what `cache` holds; extends the cache."""
        cache = Cache() if cache is None else cache
        x = self.weights["token_embd.weight"][np.asarray(tokens)]
        embedding, blocks = x, dict[int, Floats]()
        for layer in range(self.n_layer):
            x = x + self._attention(self._norm(x, f"blk.{layer}.attn_norm"), layer, cache)
            x = x + self._feed_forward(self._norm(x, f"blk.{layer}.ffn_norm"), layer)
            blocks[layer] = x
        output = self.weights.get("output.weight", self.weights["token_embd.weight"])
        return Checkpoints(embedding, blocks, _product(self._norm(x, "output_norm"), output))

    def _norm(self, x: Floats, name: str) -> Floats:
        """RMSNorm: x / sqrt(mean(x²) + eps) · weight, over the last axis."""
        wide = x.astype(np.float64)
        scale = 1.0 / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + self.norm_eps)
        return (wide * scale * self.weights[f"{name}.weight"]).astype(self.dtype)

    def _project(self, x: Floats, layer: int, name: str) -> Floats:
        """x · Wᵀ + b, where the file has a bias."""
        product = _product(x, self.weights[f"blk.{layer}.{name}.weight"])
        bias = self.weights.get(f"blk.{layer}.{name}.bias")
        return product if bias is None else product + bias

    def _rotate(self, x: Floats, start: int) -> Floats:
        """Turns the pair (2i, 2i+1) of each head of [n, heads, e] by position · frequency i."""
        angles = np.outer(np.arange(start, start + len(x)), self.frequencies)[:, None, :]
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = np.empty_like(x)
        turned[..., 0::2] = even * np.cos(angles) - odd * np.sin(angles)
        turned[..., 1::2] = even * np.sin(angles) + odd * np.cos(angles)
        return turned

    def _attention(self, x: Floats, layer: int, cache: Cache) -> Floats:
        """softmax(q · kᵀ / √e) · v over all positions up to the row's own."""
        kv_shape = (len(x), self.n_head_kv, self.head_width)
        q = self._project(x, layer, "attn_q").reshape(len(x), self.n_head, self.head_width)
        k = self._project(x, layer, "attn_k").reshape(kv_shape)
        v = self._project(x, layer, "attn_v").reshape(kv_shape)
        past = cache.keys.get(layer, k[:0])
        start = len(past)
        q, k = self._rotate(q, start), self._rotate(k, start)
        cache.keys[layer] = keys = np.concatenate([past, k])
        cache.values[layer] = values = np.concatenate([cache.values.get(layer, v[:0]), v])
        # Query head h reads key/value head h // g.
        grouped = q.reshape(len(x), self.n_head_kv, -1, self.head_width)
        scores = np.einsum("nkge,mke->kgnm", grouped, keys) / np.sqrt(self.head_width)
        rows = np.arange(start, start + len(x))[:, None]
        scores = np.where(np.arange(len(keys)) <= rows, scores, -np.inf)
        attended = np.einsum("kgnm,mke->nkge", probabilities(scores), values)
        return self._project(attended.reshape(len(x), -1).astype(self.dtype), layer, "attn_output")

    def _feed_forward(self, x: Floats, layer: int) -> Floats:
        """SwiGLU: down(silu(gate(x)) · up(x)), silu(z) = z / (1 + e⁻ᶻ)."""
        gate = self._project(x, layer, "ffn_gate")
        up = self._project(x, layer, "ffn_up")
        return self._project(gate / (1 + np.exp(-gate)) * up, layer, "ffn_down")


def _product(x: Floats, weight: Floats) -> Floats:
    """x · Wᵀ for x [n, in] and W [out, in]."""
    # Not `@`: BLAS threads spin, and on a busy machine that is fifteen times slower.
    return np.einsum("ni,oi->no", x, weight)


# Distributions over the last axis. A candidate that was removed has the logit -inf.


def log_softmax(logits: Floats) -> npt.NDArray[np.float64]:
    """z - max - log Σ e^(z - max), in float64, same shape."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def probabilities(logits: Floats) -> npt.NDArray[np.float64]:
    """Softmax in float64, same shape; a removed candidate has probability 0."""
    return np.exp(log_softmax(logits))


def survivors(logits: Floats) -> frozenset[int]:
    """The ids of [v] that can still be drawn."""
    return frozenset(np.flatnonzero(np.isfinite(logits)).tolist())


def perplexity(logits: Floats, tokens: Sequence[int]) -> float:
    """exp of the mean of -log p(tokens[i+1]) under row i of logits [n, v]; n tokens, n-1 terms."""
    picked = log_softmax(logits)[np.arange(len(tokens) - 1), np.asarray(tokens[1:])]
    return float(np.exp(-picked.mean()))


# The filters: logits [v] in, logits [v] out, no state and no dice.


def _keep(logits: Floats, ids: Sequence[int] | npt.NDArray[np.intp]) -> Floats:
    kept = np.full_like(logits, -np.inf)
    kept[ids] = logits[ids]
    return kept


def _ranked(logits: Floats) -> npt.NDArray[np.intp]:
    """Ids that survive, best first, ties by id."""
    order = np.argsort(-logits, kind="stable")
    return order[np.isfinite(logits[order])]


def temperature(logits: Floats, t: float) -> Floats:
    """z / t; at t <= 0 only the best one is left (the limit t → 0). Ackley et al. 1985."""
    return logits / t if t > 0 else _keep(logits, _ranked(logits)[:1])


def top_k(logits: Floats, k: int) -> Floats:
    """The k best; k <= 0 keeps all. Fan et al. 2018, arXiv:1805.04833."""
    return logits if k <= 0 else _keep(logits, _ranked(logits)[:k])


def top_p(logits: Floats, p: float, min_keep: int = 1) -> Floats:
    """Nucleus: the shortest list of best ones with Σ p_i >= p; p >= 1 keeps all.

    Holtzman et al. 2019, arXiv:1904.09751.
    """
    if p >= 1:
        return logits
    order = _ranked(logits)
    reached = np.cumsum(probabilities(logits)[order]) >= p
    count = int(reached.argmax()) + 1 if reached.any() else len(order)
    return _keep(logits, order[: max(count, min_keep)])


def min_p(logits: Floats, p: float, min_keep: int = 1) -> Floats:
    """All with p_i >= p · max p, that is z_i >= max z + log p; p <= 0 keeps all.

    Nguyen et al. 2024, arXiv:2407.01082.
    """
    if p <= 0:
        return logits
    order = _ranked(logits)
    count = int((logits[order] >= logits.max() + np.log(p)).sum())
    return _keep(logits, order[: max(count, min_keep)])


def typical_p(logits: Floats, p: float, min_keep: int = 1) -> Floats:
    """The shortest list with Σ p_i > p, taken by closeness of -log p_i to the entropy.

    Meister et al. 2022, arXiv:2202.00666, eq. 9; p >= 1 keeps all. llama.cpp asks for more than
    p where the paper asks for at least p.
    """
    if p >= 1:
        return logits
    ids = _ranked(logits)
    logp = log_softmax(logits)[ids]
    entropy = -(np.exp(logp) * logp).sum()
    order = np.argsort(np.abs(-logp - entropy), kind="stable")
    exceeded = np.cumsum(np.exp(logp[order])) > p
    count = int(exceeded.argmax()) + 1 if exceeded.any() else len(order)
    return _keep(logits, ids[order[: max(count, min_keep)]])


def xtc(logits: Floats, threshold: float, min_keep: int = 1) -> Floats:
    """Exclude top choices, where the dice said so: the last with p_i >= threshold and all below.

    Nothing happens with fewer than two such, with threshold > 0.5, or where fewer than `min_keep`
    would be left. p-e-w 2024, text-generation-webui pull request 6335.
    """
    order = _ranked(logits)
    top = int((probabilities(logits)[order] >= threshold).sum())
    if threshold > 0.5 or top < 2 or len(order) - (top - 1) < min_keep:
        return logits
    return _keep(logits, order[top - 1 :])


def mirostat(logits: Floats, mu: float, m: int = 100) -> Floats:
    """The int(k) best, k = (ε · 2^μ / (1 - v^-ε))^(1/s), ε = s - 1, s the Zipf exponent.

    s = Σ tᵢbᵢ / Σ tᵢ² over the m best, tᵢ = log((i+1)/i), bᵢ = log(pᵢ/pᵢ₊₁). μ starts at twice
    the target surprise. Basu et al. 2020, arXiv:2007.14966, algorithm 1.
    """
    order = _ranked(logits)
    b = -np.diff(log_softmax(logits)[order[:m]])
    t = np.log1p(1 / np.arange(1, len(b) + 1))
    s = (t * b).sum() / (t * t).sum()
    k = ((s - 1) * 2**mu / (1 - float(len(logits)) ** (1 - s))) ** (1 / s)
    return _keep(logits, order[: max(int(k), 1)])


def mirostat_v2(logits: Floats, mu: float) -> Floats:
    """All with a surprise -log₂ p_i <= μ, at least the best one. The same paper, algorithm 2."""
    surprise = -log_softmax(logits) / np.log(2)
    return _keep(logits, _ranked(logits)[: max(int((surprise <= mu).sum()), 1)])


def penalties(
    logits: Floats,
    recent: Sequence[int],
    last_n: int,
    *,
    repeat: float = 1.0,
    frequency: float = 0.0,
    presence: float = 0.0,
) -> Floats:
    """For a token that occurs c > 0 times in the last `last_n`: z' - c · frequency - presence.

    z' = z / repeat where z > 0, else z · repeat (Keskar et al. 2019, arXiv:1909.05858, with the
    usual mend for negative logits); frequency and presence as in OpenAI's API reference.
    """
    changed = logits.copy()
    for token, count in Counter(recent[-last_n:] if last_n > 0 else ()).items():
        z = changed[token]
        changed[token] = (z / repeat if z > 0 else z * repeat) - count * frequency - presence
    return changed


def dry(
    logits: Floats,
    recent: Sequence[int],
    last_n: int,
    *,
    multiplier: float,
    base: float,
    allowed_length: int,
    breakers: AbstractSet[int] = frozenset(),
) -> Floats:
    """Don't repeat yourself: z - multiplier · base^(n - allowed_length) for n >= allowed_length.

    n is the longest run at the end of the last `last_n` tokens that also stands before an earlier
    occurrence of the token; a run holds no breaker, and a breaker is never penalised (breakers of
    one token each). p-e-w 2024, text-generation-webui pull request 5677.
    """
    window = list(recent[-last_n:]) if last_n > 0 else []
    longest: dict[int, int] = {}
    for end in range(1, len(window)):
        n = 0
        while n < end and window[-1 - n] == window[end - 1 - n] and window[-1 - n] not in breakers:
            n += 1
        longest[window[end]] = max(n, longest.get(window[end], 0))
    changed = logits.copy()
    for token, n in longest.items():
        if n >= allowed_length and token not in breakers:
            changed[token] -= multiplier * base ** (n - allowed_length)
    return changed


def logit_bias(logits: Floats, bias: Mapping[int, float]) -> Floats:
    """z + bias; -inf removes. OpenAI's API reference, `logit_bias`."""
    changed = logits.copy()
    for token, value in bias.items():
        changed[token] += value
    return changed
