"""What quality is in figures: how far a level is from the reference."""

from __future__ import annotations

import msgspec


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """Multiple choice: shares of `questions`, with binomial errors.

    flips    the answer turned from right to wrong or from wrong to right
    changed  the answer is another one, also from one wrong answer to another
    """

    questions: int
    accuracy: float
    accuracy_error: float
    accuracy_reference: float
    flips: float
    flips_error: float
    changed: float


class Greedy(msgspec.Struct, frozen=True, kw_only=True):
    """Greedy continuations of `prompts` prompts, `tokens` tokens each.

    first_difference         of each prompt the index of the first other token; None: no other
    median_first_difference  a continuation without one counts with its full length
    """

    prompts: int
    tokens: int
    identical: int
    first_difference: tuple[int | None, ...]
    median_first_difference: float


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """A level's distributions beside the reference's; KLD in nats, Δp in probability (0 to 1).

    tokens, windows, window  scored tokens, windows, and tokens of a window
    kld_sampling_error       standard error that comes from rows which are kept in part
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


class Quality(Divergence, frozen=True, kw_only=True):
    """Everything that quality is, and how it was computed.

    text_tokens          tokens of the whole text
    reference_rows       entries that the reference's rows keep: [likeliest, drawn of the others]
    threads, batch_rows  of the computation; the noise floor has others than the levels
    """

    choices: Choices
    greedy: Greedy
    text_tokens: int
    reference_rows: tuple[int, int]
    threads: int
    batch_rows: int
