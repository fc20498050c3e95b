"""How far a level's distributions are from the reference's.

Definitions and errors are those of llama.cpp's perplexity tool with --kl-divergence
(tools/perplexity, 0.3.36's), so that figures can be held against published ones. For scored token
i with reference p and level q over the vocabulary, and x the token that the text has:

    PPL            exp ⟨-ln q(x)⟩, error PPL · se
    ln PPL ratio   ⟨ln p(x) - ln q(x)⟩: paired, so its error √(s²q + s²p - 2 cov) is far below
                   what the two perplexities' own errors suggest
    KLD            ⟨Σ p (ln p - ln q)⟩ in nats
    same top       share of tokens where argmax p = argmax q
    Δp             q(x) - p(x): mean, and root of the mean square with error se(Δp²) / (2 RMS)

Tokens of one window depend on each other, which the tool's errors leave out; `..._windows` is the
error with whole windows as the unit, which is what differences are judged by.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from worker.bench.reference import Block
from worker.bench.rows import Floats, Ids, Logits, gathered, log_sums
from worker.bench.statistics import mean_and_error, percentile, share_and_error
from worker.errors import BackendError

_MOST_NLL = 700.0  # nats a token, whose exponential a float still holds


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """A level against the reference; KLD in nats, Δp in probability (0 to 1).

    tokens, windows, window  scored tokens, windows, and tokens of a window
    kld_sampling_error       standard error from reference rows that are kept in part
    window_kld, window_nll   means of each window, [windows], to compare levels pairwise
    """

    tokens: int
    windows: int
    window: int
    ppl: float
    ppl_error: float
    ppl_reference: float
    ln_ppl_ratio: float
    ln_ppl_ratio_error: float
    kld_mean: float
    kld_mean_error: float
    kld_mean_error_windows: float
    kld_sampling_error: float
    kld_median: float
    kld_p90: float
    kld_p95: float
    kld_p99: float
    kld_p999: float
    kld_max: float
    same_top: float
    same_top_error: float
    dp_mean: float
    dp_mean_error: float
    dp_rms: float
    dp_rms_error: float
    window_kld: tuple[float, ...]
    window_nll: tuple[float, ...]


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """One window's values for each scored token, [n] each.

    sampling: standard error of `kld` from the part of the row that is a sample
    """

    kld: Floats
    sampling: Floats
    nll: Floats
    nll_reference: Floats
    same: Floats


def compare(logits: Logits, targets: Ids, block: Block) -> Tokens:
    """A level's rows of one window, float32 [n, vocab], against the reference's block."""
    head = block.shape.head
    sums = log_sums(logits)
    ratio = block.logp.astype(np.float64) - gathered(logits, sums, block.ids)
    weight = np.exp(block.logp[:, :head].astype(np.float64))
    kld = (weight * ratio[:, :head]).sum(axis=1)
    sampling = np.zeros(len(kld))
    if block.shape.drawn:
        drawn = ratio[:, head:]
        kld += block.tail * drawn.mean(axis=1)
        sampling = block.tail * drawn.std(axis=1) / math.sqrt(max(1, block.shape.drawn - 1))
    return Tokens(
        kld=kld,
        sampling=sampling,
        nll=-gathered(logits, sums, targets[:, None])[:, 0],
        nll_reference=-block.target,
        same=(logits.argmax(axis=1) == block.top).astype(np.float64),
    )


def summarise(windows: list[Tokens], width: int) -> Quality:
    """The figures over all windows of `width` tokens."""
    kld, sampling, nll, nll_reference, same = (
        np.concatenate([getattr(window, name) for window in windows])
        for name in ("kld", "sampling", "nll", "nll_reference", "same")
    )
    nll_mean, nll_error = mean_and_error(nll)
    ratio, ratio_error = mean_and_error(nll - nll_reference)
    kld_mean, kld_error = mean_and_error(kld)
    same_top, same_top_error = share_and_error(int(same.sum()), len(same))
    dp = np.exp(-nll) - np.exp(-nll_reference)
    dp_mean, dp_error = mean_and_error(dp)
    square, square_error = mean_and_error(dp**2)
    rms = math.sqrt(square)
    window_kld = tuple(float(window.kld.mean()) for window in windows)
    if max(nll_mean, float(nll_reference.mean())) > _MOST_NLL:
        raise BackendError(
            f"It gives the text's tokens e^-{nll_mean:.0f} on average: its weights are broken.",
            code="NOT_FINITE",
        )
    return Quality(
        tokens=len(kld),
        windows=len(windows),
        window=width,
        ppl=math.exp(nll_mean),
        ppl_error=math.exp(nll_mean) * nll_error,
        ppl_reference=math.exp(float(nll_reference.mean())),
        ln_ppl_ratio=ratio,
        ln_ppl_ratio_error=ratio_error,
        kld_mean=kld_mean,
        kld_mean_error=kld_error,
        kld_mean_error_windows=mean_and_error(np.array(window_kld))[1],
        kld_sampling_error=math.sqrt(float((sampling**2).sum())) / len(kld),
        kld_median=percentile(kld, 0.5),
        kld_p90=percentile(kld, 0.9),
        kld_p95=percentile(kld, 0.95),
        kld_p99=percentile(kld, 0.99),
        kld_p999=percentile(kld, 0.999),
        kld_max=float(kld.max()),
        same_top=same_top,
        same_top_error=same_top_error,
        dp_mean=dp_mean,
        dp_mean_error=dp_error,
        dp_rms=rms,
        dp_rms_error=square_error / (2 * rms) if rms else 0.0,
        window_kld=window_kld,
        window_nll=tuple(float(window.nll.mean()) for window in windows),
    )
