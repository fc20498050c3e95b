"""How much is measured: within the model's context and within the time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.cases import for_each
from worker.bench.plan import BenchPlan, Level, open_corpus, settings_of
from worker.bench.sections import TokenCost
from worker.bench.sizes import EFFORTS, WHOLE, BenchWork, Effort, scoring_s, sizes_for, speed_s
from worker.bench.stages import scorings
from worker.errors import UsageError
from worker.settings import Settings

FAST = TokenCost(read_s=5e-5, write_s=3e-4, score_s=2e-5, text_tokens=28_000)
HALF = TokenCost(read_s=2e-3, write_s=2e-2, score_s=5e-4, text_tokens=300_000)
SLOW = TokenCost(read_s=0.05, write_s=0.2, score_s=1e-3, text_tokens=28_000)


def work(context: int = 131_072, questions: int | None = None) -> BenchWork:
    """Of eight levels that are scored, the reference three times more."""
    return BenchWork(context=context, streams=4, levels=8, scorings=11, questions=questions)


@for_each("effort", EFFORTS)
@for_each("context", [64, 300, 2048, 131_072])
@for_each("cost", [FAST, SLOW])
def test_sequences_fit_the_context(effort: Effort, context: int, cost: TokenCost) -> None:
    """No test is longer than what the model was trained on, and every one measures something."""
    sizes = sizes_for(effort, cost, work(context), EFFORTS[effort][1])
    longest = max(sizes.depth + max(sizes.prompt, sizes.decode), sizes.prompt + sizes.decode)
    assert longest <= context
    assert sizes.window <= context
    assert min(sizes.prompt, sizes.decode, sizes.greedy_tokens, sizes.repetitions) >= 1


@for_each("effort", EFFORTS)
@for_each("seconds", [60.0, 300.0, 3600.0])
def test_what_is_measured_fits_the_time(effort: Effort, seconds: float) -> None:
    """Speed and quality of all levels together take no more than the seconds there are."""
    for cost in (FAST, HALF):
        sizes = sizes_for(effort, cost, work(), seconds)
        least = sizes_for(effort, cost, work(), 1e-3)
        found = 8 * speed_s(sizes, cost, 4) + 11 * scoring_s(sizes, cost)
        smallest = 8 * speed_s(least, cost, 4) + 11 * scoring_s(least, cost)
        assert found <= max(seconds, smallest)


def test_the_whole_text_is_scored_if_there_is_time() -> None:
    """By default; of a longer text, or by a slower model, as much as the time allows."""
    assert sizes_for("normal", FAST, work(), 300).windows == WHOLE
    some = sizes_for("normal", HALF, work(), 300)
    more = sizes_for("normal", HALF, work(), 600)
    assert EFFORTS["normal"][0].window * more.windows < HALF.text_tokens
    assert more.windows > 1.5 * some.windows
    assert sizes_for("normal", HALF, work(), 100_000).windows == WHOLE
    assert sizes_for("quick", FAST, work(), 300).windows == EFFORTS["quick"][0].windows


def test_own_questions_are_all_asked() -> None:
    """If there is time; else as many as there is time for."""
    assert sizes_for("normal", FAST, work(questions=500), 300).questions == 500
    assert sizes_for("quick", FAST, work(questions=3), 300).questions == 3
    assert 16 <= sizes_for("normal", SLOW, work(questions=500), 300).questions < 500


def test_a_slow_model_is_measured_less() -> None:
    """If the effort's sizes would take too long, they are cut down to the time there is."""
    full = EFFORTS["normal"][0]
    cut = sizes_for("normal", SLOW, work(), 300)
    assert cut.windows < full.windows
    assert cut.depth < full.depth
    assert cut.questions < full.questions


def test_a_fast_model_writes_more_in_a_repetition() -> None:
    """A repetition of a few milliseconds would measure nothing."""
    assert sizes_for("quick", FAST, work(), 75).decode > EFFORTS["quick"][0].decode


def test_the_text_is_scored_for_all_levels() -> None:
    """Once each, again for the rows of the reference, and twice for the noise floor."""

    def plan(effort: Effort) -> BenchPlan:
        text = open_corpus(Path(__file__))
        levels = tuple(Level(name=name, path="x") for name in ("F16", "Q8_0", "Q4_0"))
        return BenchPlan(
            levels=levels, source=None, imatrix=None, settings=Settings(), effort=effort,
            threads=2, corpus=text, questions="general", max_kld=0.05,
        )  # fmt: skip

    assert scorings(plan("normal")) == 3 + 1 + 2
    assert scorings(plan("quick")) == 3 + 1
    assert scorings(replace(plan("quick"), corpus=None)) == 0


def test_cells_are_enough_for_all_streams() -> None:
    """The context holds every stream at full depth."""
    sizes = sizes_for("normal", FAST, work(2048), 300)
    plan = BenchPlan(
        levels=(Level(name="F16", path="x"),), source=None, imatrix=None,
        settings=Settings(parallel=3), effort="normal", threads=2, corpus=None,
        questions="general", max_kld=0.05,
    )  # fmt: skip
    settings = settings_of(plan, sizes)
    assert settings.ctx_size is not None
    assert settings.ctx_size >= 3 * (sizes.depth + sizes.decode)
    assert settings.slots == 3


def test_blank_lines_are_no_text(tmp_path: Path) -> None:
    """A text without a word measures nothing, and is refused before anything is computed."""
    text = tmp_path / "text.txt"
    text.write_text("\n \t\r\n\u2003" * 500)
    with pytest.raises(UsageError, match="blank lines only"):
        open_corpus(text)


def test_a_pipe_is_no_text(tmp_path: Path) -> None:
    """A text is read twice and whole, so a pipe or an endless device is refused before it is."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(UsageError, match="no regular file"):
            open_corpus(path)


def test_a_context_of_a_few_tokens_is_refused() -> None:
    """Where there is no room to measure a speed none is told."""
    with pytest.raises(UsageError, match="6 tokens at most"):
        sizes_for("quick", FAST, work(6), 75)
