"""Two reports side by side: real changes are called real, others none."""

from __future__ import annotations

from tests.bench.report.reports import level, measured, quality, replaced, report
from worker.bench.report import BenchReport, LevelReport
from worker.bench.report.changes import Change, changes_between


def before(*, per_s: float = 20.0) -> BenchReport:
    """Two levels."""
    return report([level("F16", 1000, 10, 0.0, reference=True), level("Q8_0", 500, per_s, 0.01)])


def changed(report_: BenchReport, **fields: object) -> BenchReport:
    """The report with its second level changed."""
    first, second = report_.levels
    return replaced(report_, levels=(first, replaced(second, **fields)))


def found(a: BenchReport, b: BenchReport, figure: str) -> Change:
    """The change of one figure of the second level."""
    return next(c for c in changes_between(a, b).changes if (c.quant, c.figure) == ("Q8_0", figure))


def test_a_report_has_not_changed_from_itself() -> None:
    """Nothing is real, nothing is missing, no condition differs."""
    same = changes_between(before(), before())
    assert same.changes
    assert not any(change.is_real for change in same.changes)
    assert same.conditions == same.only_before == same.only_after == ()


def test_speed_is_judged_by_its_spread() -> None:
    """A tenth faster is real where runs differ by 1 %; and none where passes differ by 10 %."""
    faster = changed(before(), **measured(22))
    assert found(before(), faster, "write").is_real
    assert found(before(), faster, "HTTP").is_real
    noisy = before()
    noisy = replaced(noisy, verdict=replaced(noisy.verdict, speed_noise=0.1))
    assert not found(noisy, faster, "write").is_real
    slightly = changed(before(), **measured(20.3))
    assert not found(before(), slightly, "write").is_real


def test_quality_is_judged_window_by_window() -> None:
    """The same shift in every window is real, however much windows differ."""
    worse = changed(before(), quality=quality(0.012))
    change = found(before(), worse, "KLD")
    assert change.is_real
    assert change.margin is not None
    assert change.after - change.before > change.margin


def test_another_text_cannot_be_compared() -> None:
    """Then no change of quality is called real, and the text is named as a condition."""
    worse = changed(before(), quality=quality(0.5))
    assert worse.corpus is not None
    other = replaced(worse, corpus=replaced(worse.corpus, sha256="ef" * 32))
    change = found(before(), other, "KLD")
    assert not change.is_real
    assert change.note == "other text"
    assert any(text.startswith("text:") for text in changes_between(before(), other).conditions)


def test_another_reference_or_other_windows_cannot_be_compared() -> None:
    """A divergence is from something; and windows of another number are other windows."""
    worse = changed(before(), quality=quality(0.5))
    first, *others = worse.levels
    other = replaced(worse, levels=(replaced(first, sha256="01" * 32), *others))
    change = found(before(), other, "KLD")
    assert not change.is_real
    assert change.note == "other reference"
    assert found(before(), other, "PPL").note == ""
    fewer = quality(0.5)
    fewer = replaced(fewer, window_kld=fewer.window_kld[1:], window_nll=fewer.window_nll[1:])
    assert found(before(), changed(before(), quality=fewer), "KLD").note == "other windows"


def test_what_else_differs_is_told_one_by_one() -> None:
    """Of the sizes only those that are others; another model first of all."""
    sizes = replaced(before().sizes, repetitions=99)
    changes = changes_between(before(), replaced(before(), sizes=sizes, model="Another"))
    assert changes.conditions == (
        "model: A model before, Another after",
        f"repetitions: {before().sizes.repetitions} before, 99 after",
    )


def test_speeds_of_other_sizes_are_not_compared() -> None:
    """Reading a longer prompt is another figure; writing is still the same one."""
    sizes = replaced(before().sizes, prompt=before().sizes.prompt + 1)
    changes = changes_between(before(), replaced(before(), sizes=sizes)).changes
    figures = {change.figure for change in changes}
    assert "write" in figures
    assert not figures & {"read", "HTTP"}


def test_memory_and_size_have_no_spread() -> None:
    """Resident memory is real above 2 %, the size of a file always."""
    level_ = before().levels[1]
    assert level_.speed is not None
    assert level_.speed.memory is not None
    for share, is_real in ((1.01, False), (1.05, True)):
        memory = replaced(level_.speed.memory, peak_rss=round(1000 * share))
        speed = replaced(level_.speed, memory=memory)
        assert found(before(), changed(before(), speed=speed), "peak").is_real == is_real
    assert found(before(), changed(before(), size_bytes=501), "size").is_real


def test_levels_of_one_report_only_are_named() -> None:
    """Levels that came or went, and the two verdicts."""
    extra: list[LevelReport] = [*before().levels, level("Q4_0", 300, 30, 0.02)]
    more = report(extra)
    changes = changes_between(before(), more)
    assert changes.only_after == ("Q4_0",)
    assert changes.recommended == ("Q8_0", "Q4_0")
    assert changes_between(more, before()).only_before == ("Q4_0",)


def test_a_perplexity_is_no_number_of_nats() -> None:
    """It is shown as it is, with the change that its logarithms make sure, also of other texts."""
    worse = changed(before(), quality=quality(0.3))
    change = found(before(), worse, "PPL")
    assert (change.unit, change.before, change.after) == ("", 2.11, 2.4)
    assert change.is_real
    assert change.margin is not None
    assert 0 < change.margin < 0.3
    assert worse.corpus is not None
    other = replaced(worse, corpus=replaced(worse.corpus, sha256="ef" * 32))
    assert found(before(), other, "PPL").unit == ""


def test_what_is_within_the_error_is_within_what_is_shown() -> None:
    """A change is real if and only if it is larger than its margin, also that of noisy passes."""
    noisy = before()
    noisy = replaced(noisy, verdict=replaced(noisy.verdict, speed_noise=0.4))
    halved = changed(noisy, **measured(10))
    found_ = [c for c in changes_between(noisy, halved).changes if c.margin is not None]
    assert any(not c.is_real and abs(c.after - c.before) > 0.4 * c.before for c in found_)
    for change in found_:
        assert change.margin is not None
        assert change.is_real == (abs(change.after - change.before) > change.margin)
