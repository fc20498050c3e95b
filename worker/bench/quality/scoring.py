"""How far a level's distributions are from the reference's.

Definitions and errors are those of llama.cpp's perplexity tool with --kl-divergence
(tools/perplexity, 0.3.36's), so figures can be compared with published ones. For a scored token
with reference p and level q over the vocabulary, and x the token that the text has:

    PPL            exp ⟨-ln q(x)⟩, error PPL · se
    ln PPL ratio   ⟨ln p(x) - ln q(x)⟩: paired, so its error √(s²q + s²p - 2 cov) is far below
                   what the two perplexities' own errors suggest
    KLD            ⟨Σ p (ln p - ln q)⟩ in nats
    same top       share of tokens where argmax p = argmax q
    Δp             q(x) - p(x): mean, and root of the mean square with error se(Δp²) / (2 RMS)

The tool's errors ignore that tokens of one window depend on each other. The error `..._windows`
has the window as its unit; differences are judged by that one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from worker.bench.figures import Floats, Ids, mean_and_error, percentile, share_and_error
from worker.bench.quality.answers import (
    Answers,
    choose,
    compare_choices,
    compare_greedy,
    continue_greedily,
)
from worker.bench.quality.questions import questions_of
from worker.bench.quality.reference import (
    ANSWERS,
    ReferenceBlock,
    ReferenceRows,
    condense,
    shape_of,
)
from worker.bench.quality.windows import Logits, cut, gather, log_sums, logits_of, text_of
from worker.bench.sections import Divergence, Quality
from worker.bench.stages import StageJob
from worker.errors import BackendError, UsageError
from worker.llama.backend import LlamaBackend

_MOST_NLL = 700.0  # nats a token; a float still holds e^700
_PERCENTILES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
# The multiple choice and the greedy texts take these shares of a job's time; the text the rest.
_CHOICES, _GREEDY = 0.1, 0.1


class WindowScores(msgspec.Struct, frozen=True, kw_only=True):
    """One window's values for each scored token, [n] each.

    sampling: standard error of `kld`, from the part of the row that is a sample
    """

    kld: Floats
    sampling: Floats
    nll: Floats
    nll_reference: Floats
    same: Floats


def compare(logits: Logits, targets: Ids, block: ReferenceBlock) -> WindowScores:
    """A level's rows of one window, float32 [n, vocab], against the reference's block."""
    head = block.shape.head
    sums = log_sums(logits)
    ratio = block.logp.astype(np.float64) - gather(logits, sums, block.ids)
    weight = np.exp(block.logp[:, :head].astype(np.float64))
    kld = (weight * ratio[:, :head]).sum(axis=1)
    sampling = np.zeros(len(kld))
    if block.shape.drawn:
        drawn = ratio[:, head:]
        kld += block.tail * drawn.mean(axis=1)
        sampling = block.tail * drawn.std(axis=1) / math.sqrt(max(1, block.shape.drawn - 1))
    return WindowScores(
        kld=kld,
        sampling=sampling,
        nll=-gather(logits, sums, targets[:, None])[:, 0],
        nll_reference=-block.target,
        same=(logits.argmax(axis=1) == block.top).astype(np.float64),
    )


def summarise(windows: list[WindowScores], width: int) -> Divergence:
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
    return Divergence(
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
        kld_mean_error_windows=_error(np.array(window_kld)),
        kld_sampling_error=math.sqrt(float((sampling**2).sum())) / len(kld),
        **{f"kld_{name}": percentile(kld, share) for name, share in _PERCENTILES.items()},
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


def _error(values: Floats) -> float | None:
    """The standard error of a mean; None: one value says nothing of it."""
    return mean_and_error(values)[1] if len(values) > 1 else None


def score(
    backend: LlamaBackend,
    job: StageJob,
    threads: int,
    batch_rows: int,
    report: Callable[[float], None],
) -> Quality:
    """Compare a level with the reference; the reference itself is compared with what it writes.

    batch_rows  tokens computed at once
    report      takes the share of the job that is done, 0 to 1
    """
    assert job.plan.corpus is not None
    folder, sizes = Path(job.place), job.sizes
    windows = cut(text_of(job.plan.corpus), backend.vocab, sizes.window, sizes.windows)
    if job.writes:
        shape = shape_of(len(windows.tokens) * windows.num_scored, backend.vocab_size)
        rows = ReferenceRows.create(folder, windows, shape)
    else:
        rows = ReferenceRows(folder)
        if not np.array_equal(rows.windows.tokens, windows.tokens):
            raise UsageError(
                "The file's tokenizer cuts the text differently from the reference's.",
                hint="Compare files of one model only.",
            )
    found: list[WindowScores] = []
    for index, (logits, targets) in enumerate(logits_of(backend, windows, batch_rows)):
        if not np.isfinite(logits).all():
            raise BackendError("It computes values that are no numbers.", code="NOT_FINITE")
        if job.writes:
            rows.write(index, condense(logits, targets, rows.shape, seed=index))
        found.append(compare(logits, targets, rows.read(index)))
        report((1 - _CHOICES - _GREEDY) * (index + 1) / len(windows.tokens))
    questions = questions_of(job.plan, sizes.questions)
    mine = Answers(
        choices=choose(backend, questions),
        greedy=continue_greedily(backend, windows, sizes.greedy_prompts, sizes.greedy_tokens),
    )
    report(1.0)
    answers = folder / ANSWERS
    if job.writes:
        answers.write_bytes(msgspec.json.encode(mine))
    wanted = msgspec.json.decode(answers.read_bytes(), type=Answers)
    return Quality(
        **msgspec.structs.asdict(summarise(found, windows.tokens.shape[1])),
        choices=compare_choices(questions, wanted.choices, mine.choices),
        greedy=compare_greedy(wanted.greedy, mine.greedy),
        text_tokens=windows.num_tokens,
        reference_rows=(rows.shape.head, rows.shape.drawn),
        threads=threads,
        batch_rows=batch_rows,
    )
