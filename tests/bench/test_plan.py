"""How much is measured: within the model's context and within the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cases import for_each
from worker.bench.plan import BenchPlan, Level, open_corpus, settings_of
from worker.bench.sections import TokenCost
from worker.bench.sizes import EFFORTS, Effort, expected_s, sizes_for
from worker.errors import UsageError
from worker.settings import Settings

FAST = TokenCost(read_s=5e-5, write_s=3e-4)
SLOW = TokenCost(read_s=0.05, write_s=0.2)


@for_each("effort", EFFORTS)
@for_each("context", [64, 300, 2048, 131_072])
@for_each("cost", [FAST, SLOW])
def test_sequences_fit_the_context(effort: Effort, context: int, cost: TokenCost) -> None:
    """No test is longer than what the model was trained on, and every one measures something."""
    sizes = sizes_for(effort, cost, context, 4, quality=True)
    longest = max(sizes.depth + max(sizes.prompt, sizes.decode), sizes.prompt + sizes.decode)
    assert longest <= context
    assert sizes.window <= context
    assert min(sizes.prompt, sizes.decode, sizes.greedy_tokens, sizes.repetitions) >= 1


def test_a_slow_model_is_measured_less() -> None:
    """Where the effort's sizes would take too long, they are cut down to the time it has."""
    full, budget_s = EFFORTS["normal"]
    assert expected_s(full, SLOW, 4, quality=True) > 10 * budget_s
    cut = sizes_for("normal", SLOW, 131_072, 4, quality=True)
    assert cut.windows < full.windows
    assert cut.depth < full.depth
    assert expected_s(cut, SLOW, 4, quality=True) < expected_s(full, SLOW, 4, quality=True) / 4
    half = TokenCost(read_s=2e-3, write_s=2e-2)
    fitted = sizes_for("normal", half, 131_072, 4, quality=True)
    assert expected_s(fitted, half, 4, quality=True) <= budget_s


def test_a_fast_model_writes_more_in_a_repetition() -> None:
    """A repetition of a few milliseconds would measure nothing."""
    assert sizes_for("quick", FAST, 131_072, 4, quality=True).decode > EFFORTS["quick"][0].decode


def test_cells_are_enough_for_all_streams() -> None:
    """The context holds every stream at full depth."""
    sizes = sizes_for("normal", FAST, 2048, 4, quality=True)
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


def test_a_context_of_a_few_tokens_is_refused() -> None:
    """Where there is no room to measure a speed none is told."""
    with pytest.raises(UsageError, match="6 tokens at most"):
        sizes_for("quick", FAST, 6, 4, quality=True)
