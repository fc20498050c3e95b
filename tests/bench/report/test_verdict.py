"""The rule, on figures made for it."""

from __future__ import annotations

from tests.bench.report.reports import level, measured, quality, replaced
from worker.bench.report import LevelReport
from worker.bench.report.verdict import VerdictRule, judge, speed_noise

MB = 10**6


def five() -> list[LevelReport]:
    """Smaller is faster and further from the reference."""
    return [
        level("F16", 1000 * MB, 10, 0.0, reference=True),
        level("Q8_0", 530 * MB, 18, 0.001),
        level("Q6_K", 410 * MB, 22, 0.004),
        level("Q4_K_M", 300 * MB, 30, 0.03),
        level("Q2_K", 200 * MB, 40, 0.4),
    ]


def test_the_fastest_that_is_near_enough() -> None:
    """Q2_K is faster still, but too far from the reference."""
    verdict = judge(five(), 0.05)
    assert verdict.recommended == "Q4_K_M"
    assert verdict.confidence == "sure"
    assert {found.quant: found.passes for found in verdict.judgements} == {
        "F16": True, "Q8_0": True, "Q6_K": True, "Q4_K_M": True, "Q2_K": False,
    }  # fmt: skip
    assert verdict.pareto == ("F16", "Q8_0", "Q6_K", "Q4_K_M", "Q2_K")


def test_the_limit_is_the_users() -> None:
    """A stricter limit takes a better level."""
    assert judge(five(), 0.005).recommended == "Q6_K"
    assert judge(five(), 1.0).recommended == "Q2_K"


def test_without_a_gain_in_speed_quality_decides() -> None:
    """Of levels of one speed the nearest to the reference; of those nearly as near the smallest."""
    levels = [replaced(found, **measured(20)) for found in five()]
    assert judge(levels, 0.05).recommended == "Q6_K"  # 0.004 is within 0.005 of the reference
    assert judge(levels, 0.02).recommended == "Q8_0"


def test_noise_between_passes_is_no_difference() -> None:
    """Levels whose passes differ by more than their means are of one speed, and that is doubted."""
    levels = [
        replaced(found, **measured(20, (20 * share, 40 - 20 * share)))
        for found, share in zip(five(), (0.7, 1.3, 0.8, 1.25, 0.75), strict=True)
    ]
    noise, degrees = speed_noise(levels)
    assert noise is not None
    assert noise > 0.2
    assert degrees == 5
    verdict = judge(levels, 0.05)
    assert verdict.recommended == "Q6_K"
    assert verdict.confidence == "toss-up"
    assert not any(found.speed and found.speed.is_real for found in verdict.comparisons)
    assert any("known to" in doubt for doubt in verdict.doubts)


def test_the_smallest_must_not_be_beaten() -> None:
    """Within the errors too: who is slower and further away is not taken for its size."""
    levels = five()
    shares = (0.9, 1.0, 1.2, 0.8, 0.7)
    levels = [
        replaced(found, **measured(20 * share, (10 * share, 30 * share)))
        for found, share in zip(levels, shares, strict=True)
    ]
    verdict = judge(levels, 1.0)
    assert verdict.recommended == "Q6_K"
    assert verdict.confidence == "toss-up"
    assert any(
        "both slower and less accurate than another: Q4_K_M" in reason for reason in verdict.reasons
    )


def test_what_may_be_too_far_is_not_taken_but_said() -> None:
    """A level whose interval reaches over the limit is left open, and the verdict unsure."""
    levels = five()
    levels[3] = replaced(levels[3], quality=quality(0.048, spread=0.5))
    verdict = judge(levels, 0.05)
    assert verdict.recommended == "Q6_K"
    assert verdict.confidence == "likely"
    assert [found.passes for found in verdict.judgements][3] is None
    assert any("Q4_K_M" in doubt for doubt in verdict.doubts)


def test_two_that_cannot_be_told_apart_are_a_toss_up() -> None:
    """The same speed and the same divergence, window by window: the smaller one, and so said."""
    levels = five()
    levels[2] = replaced(levels[3], quant="Q4_K_L", size_bytes=310 * MB)
    verdict = judge(levels, 0.05)
    assert verdict.recommended == "Q4_K_M"
    assert verdict.confidence == "toss-up"
    speed, kld = verdict.comparisons[2].speed, verdict.comparisons[2].kld
    assert speed is not None
    assert kld is not None
    assert not speed.is_real
    assert not kld.is_real


def test_a_level_that_is_beaten_is_not_on_the_front() -> None:
    """Larger, slower and further away than another one."""
    levels = five()
    levels.insert(1, level("Q5_1", 600 * MB, 15, 0.02))
    assert "Q5_1" not in judge(levels, 0.05).pareto
    assert judge(levels, 0.05).recommended == "Q4_K_M"


def test_a_level_without_room_for_a_context_is_not_taken() -> None:
    """8,192 tokens must fit, or what the model was trained on."""
    levels = five()
    speed = levels[3].speed
    assert speed is not None
    needs = replaced(speed.needs, max_context=4096)
    levels[3] = replaced(levels[3], speed=replaced(speed, needs=needs))
    assert judge(levels, 0.05).recommended == "Q6_K"


def test_without_quality_nothing_is_recommended() -> None:
    """Speed and size alone do not say which level to take."""
    levels = [replaced(found, quality=None) for found in five()]
    verdict = judge(levels, 0.05)
    assert verdict.recommended is None
    assert verdict.confidence == "none"
    assert verdict.reasons == (
        "Quality was not measured, so no level is recommended.", "The fastest is Q2_K.",
    )  # fmt: skip
    twin = replaced(levels[-1], quant="Q2_K_S", size_bytes=levels[-1].size_bytes - 1)
    reasons = judge([*levels, twin], 0.05).reasons
    assert reasons[1] == "The fastest is Q2_K, indistinguishable from Q2_K_S."


def test_a_level_that_failed_costs_no_other() -> None:
    """It is judged as not measured and is on no front."""
    levels = five()
    levels[2] = replaced(
        levels[2],
        speed=None,
        serve=None,
        serve_again=None,
        quality=None,
        errors={"load": "It was killed."},
    )
    verdict = judge(levels, 0.05)
    assert verdict.recommended == "Q4_K_M"
    assert "Q6_K" not in verdict.pareto
    assert verdict.judgements[2].why == "was not measured: It was killed."
    assert verdict.comparisons[1].speed is None


def test_one_pass_is_judged_by_its_repetitions() -> None:
    """Without a second pass there is no noise between passes to go by."""
    single = replaced(five()[0], serve_again=None)
    assert speed_noise([single]) == (None, 0)
    other = five()[3]
    assert VerdictRule([single], 0.05).speed_difference(single, other).is_real


def test_one_window_decides_nothing() -> None:
    """Of a divergence in one window of text nobody knows how sure it is: no level passes by it."""
    levels = five()
    whole = levels[1].quality
    assert whole is not None
    alone = replaced(whole, windows=1, kld_mean_error_windows=None)
    levels[1] = replaced(levels[1], quality=alone)
    found = {one.quant: one for one in judge(levels, 0.05).judgements}["Q8_0"]
    assert found.passes is None
    assert "only window" in found.why
