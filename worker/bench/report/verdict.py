"""Which level to take, by a rule that is written down, and how sure that is."""

from __future__ import annotations

import itertools
import math

from worker.bench.figures import Difference, difference, paired_difference, t95
from worker.bench.report import Comparison, Judgement, LevelReport, Verdict

# Nats of mean KL divergence from the reference. Published figures for Llama 3 8B: Q4_K_M 0.03,
# Q3_K_M 0.10 (llama.cpp, tools/perplexity).
DEFAULT_MAX_KLD = 0.05
# Differences below these are not worth a larger or slower file.
MATERIAL_SPEED = 0.03
MATERIAL_KLD = 0.1  # of the limit
_COARSE_SPEED = 0.15  # above this half-width of an interval, equal speeds are no finding
_ROOM = 8192  # tokens of context that a level must leave room for


def judge(levels: list[LevelReport], max_kld: float) -> Verdict:
    """The verdict over levels that were measured; see `VerdictRule`."""
    return VerdictRule(levels, max_kld).verdict()


class VerdictRule:
    """Applies the rule.

    1. A level may be taken when its mean KL divergence is at most the limit, with 95 %
       confidence, and when a context of 8,192 tokens (or the trained one, if shorter) fits.
    2. Of these the fastest in writing one stream over HTTP, and all that are not really slower
       than it.
    3. Of these the one that diverges least, and all that diverge by little more.
    4. Of these the smallest. A level that another one beats in both speed and divergence, even if
       only within the errors, is not taken: nobody would.
    """

    def __init__(self, levels: list[LevelReport], max_kld: float) -> None:
        self._levels, self._max_kld = levels, max_kld
        self._edge = max_kld * MATERIAL_KLD
        self.noise, self._degrees = speed_noise(levels)

    def verdict(self) -> Verdict:
        judgements = [self._judgement(level) for level in self._levels]
        pairs = list(zip(self._levels, judgements, strict=True))
        chosen, reasons, doubts = self._choose([a for a, b in pairs if b.passes is True])
        if any(level.quality for level in self._levels):
            doubts += [f"{b.quant} {b.why}." for b in judgements if b.passes is None]
        else:
            reasons = ["Quality was not measured, so no level is recommended."]
            measured = [level for level in self._levels if level.speed is not None]
            if len(measured) > 1:
                reasons.append(self._fastest(measured))
        confidence = "none"
        if chosen is not None:
            rivals = [a.quant for a, b in pairs if b.passes and self._is_rival(chosen, a)]
            doubts += [f"{rival} is indistinguishable by speed and quality." for rival in rivals]
            is_coarse = self._coarseness(chosen, [a for a, b in pairs if b.passes]) > _COARSE_SPEED
            confidence = "toss-up" if rivals or is_coarse else "likely" if doubts else "sure"
        return Verdict(
            recommended=chosen.quant if chosen else None,
            confidence=confidence,
            rule=f"Of the levels that diverge by at most {self._max_kld:g} nats (with 95 % "
            "confidence) and leave room for the context, take the fastest over HTTP. "
            f"Of levels within {MATERIAL_SPEED:.0%} or the errors of it, take the most accurate. "
            f"Of levels within {self._edge:g} nats of that, take the smallest, but none that is "
            "both slower and less accurate than another.",
            reasons=tuple(reasons),
            doubts=tuple(doubts),
            pareto=tuple(level.quant for level in self.front()),
            speed_noise=self.noise,
            judgements=tuple(judgements),
            comparisons=tuple(self.compare(a, b) for a, b in itertools.pairwise(self._levels)),
        )

    def _choose(self, may: list[LevelReport]) -> tuple[LevelReport | None, list[str], list[str]]:
        """The level that the rule takes, the reasons, and what is not sure about them."""
        if not may:
            return None, ["No level is known to be close enough to the reference."], []
        reasons, doubts = list[str](), list[str]()
        fastest = max(may, key=_speed)
        quick = [level for level in may if not self.speed_difference(fastest, level).is_real]
        slow = [level for level in may if level not in quick]
        if slow:
            rates = [f"{lv.quant} ({_speed(lv) / _speed(fastest) - 1:+.0%})" for lv in slow]
            reasons.append(f"Slower than {fastest.quant}: {', '.join(rates)}.")
        if len(quick) > 1:
            share = self._coarseness(fastest, quick)
            reasons.append(f"Equally fast, as far as {_within(share)} can tell: {_names(quick)}.")
            if share > _COARSE_SPEED:
                doubts.append(
                    f"Speeds are known to {_within(share)} only. Run it again when the machine is "
                    "idle, or with --thorough."
                )
        best = min(quick, key=_kld)
        near = [level for level in quick if _kld(level) <= _kld(best) + self._edge]
        chosen = min(_unbeaten(near), key=lambda level: level.size_bytes)
        if chosen is not best:
            reasons.append(
                f"{best.quant} is more accurate by {_kld(chosen) - _kld(best):.5f} nats, too "
                "little to be worth its size."
            )
        beaten = [level for level in near if level.size_bytes < chosen.size_bytes]
        if beaten:
            reasons.append(
                f"Smaller, but both slower and less accurate than another: {_names(beaten)}."
            )
        far = [level for level in quick if level not in near]
        if far:
            reasons.append(f"Less accurate, and not faster: {_names(far)}.")
        doubts += [
            f"{level.quant} may or may not be less accurate by enough to matter: a longer --text "
            "would tell."
            for level in quick
            if abs(_kld(level) - _kld(best) - self._edge) < _kld_margin(level)
        ]
        return chosen, reasons, doubts

    def _coarseness(self, level: LevelReport, others: list[LevelReport]) -> float:
        """How coarsely speeds are known, as a share of a level's speed.

        Of all levels that do not really differ from it: half of the widest interval.
        """
        found = [self.speed_difference(level, other) for other in others if other is not level]
        margins = [math.inf if d.margin is None else d.margin for d in found if not d.is_real]
        return max(margins, default=0.0) / (_speed(level) or 1.0)

    def _fastest(self, levels: list[LevelReport]) -> str:
        best = max(levels, key=_speed)
        near = [lv for lv in levels if not (lv is best or self.speed_difference(best, lv).is_real)]
        beside = f", indistinguishable from {_names(near)}" if near else ""
        return f"The fastest is {best.quant}{beside}."

    def _judgement(self, level: LevelReport) -> Judgement:
        def judgement(passes: bool | None, why: str) -> Judgement:
            return Judgement(quant=level.quant, passes=passes, why=why)

        if level.adapter is not None:
            return judgement(False, "has an adapter, so it says something else on purpose")
        if level.speed is None:
            why = next(iter(level.errors.values()), "no speed")
            return judgement(False, f"was not measured: {why}")
        needs = level.speed.needs
        if needs.max_context < min(_ROOM, needs.trained_context or _ROOM):
            return judgement(False, f"leaves room for {needs.max_context:,} tokens of context")
        if level.quality is None:
            return judgement(None, "was not scored")
        if level.is_reference:
            return judgement(True, "is the reference")
        if level.quality.windows < 2:
            return judgement(
                None,
                f"diverges by {_kld(level):.5f} nats in the text's only window, so how sure that "
                "is cannot be said",
            )
        kld, margin = _kld(level), _kld_margin(level)
        text = f"diverges by {kld:.5f} ± {margin:.5f} nats"
        if kld + margin <= self._max_kld:
            return judgement(True, text)
        if kld - margin > self._max_kld:
            return judgement(False, f"{text}, more than {self._max_kld:g}")
        return judgement(None, f"{text}, which may be more than {self._max_kld:g}")

    def compare(self, a: LevelReport, b: LevelReport) -> Comparison:
        """b beside a: size as a ratio, speed as a share, divergence on the same windows."""
        speed = self.speed_difference(a, b).as_share_of(_speed(a)) if a.speed and b.speed else None
        kld = _kld_difference(a, b) if a.quality and b.quality else None
        return Comparison(
            a=a.quant, b=b.quant, size=b.size_bytes / a.size_bytes, speed=speed, kld=kld
        )

    def front(self) -> list[LevelReport]:
        """Levels that no other one beats. To beat is to be really better in size, speed or
        divergence, and really worse in none."""
        measured = [level for level in self._levels if level.speed is not None]
        return [a for a in measured if not any(self._beats(b, a) for b in measured)]

    def _beats(self, a: LevelReport, b: LevelReport) -> bool:
        speed = self.speed_difference(b, a)
        better, worse = a.size_bytes < b.size_bytes, a.size_bytes > b.size_bytes
        better |= speed.is_real and speed.value > 0
        worse |= speed.is_real and speed.value < 0
        if a.quality and b.quality:
            kld = _kld_difference(b, a)
            better |= kld.is_real and kld.value < 0
            worse |= kld.is_real and kld.value > 0
        return better and not worse

    def _is_rival(self, chosen: LevelReport, other: LevelReport) -> bool:
        """Whether nothing that was measured with an error tells the two apart."""
        return chosen is not other and not (
            self.speed_difference(chosen, other).is_real or _kld_difference(chosen, other).is_real
        )

    def speed_difference(self, a: LevelReport, b: LevelReport) -> Difference:
        """How much faster b writes than a.

        Judged by what passes differ, where there were two: the repetitions of one process do not
        show how the machine drifts.
        """
        ours, theirs = a.writing_speed(), b.writing_speed()
        if self.noise is None:
            return difference(ours, theirs, floor=MATERIAL_SPEED)
        value = theirs.mean - ours.mean
        means = 1 / _passes(a) + 1 / _passes(b)  # variance of the difference, in that of a pass
        error = self.noise * math.sqrt(means) * (ours.mean + theirs.mean) / 2
        margin = t95(self._degrees) * error
        is_real = abs(value) > max(margin, MATERIAL_SPEED * ours.mean)
        return Difference(value=value, margin=margin, is_real=is_real)


def speed_noise(levels: list[LevelReport]) -> tuple[float | None, int]:
    """Standard deviation of a pass over HTTP as a share of its speed, and its degrees of freedom.

    Pooled over levels: two passes m₁, m₂ of one level have the variance (m₁ - m₂)² / 2.
    """
    shares = [
        (first - second) ** 2 / 2 / ((first + second) / 2) ** 2
        for level in levels
        if level.speed is not None
        for request in level.http()
        if request.streams == 1 and len(request.passes) == 2
        for first, second in [request.passes]
        if first + second > 0
    ]
    if not shares:
        return None, 0
    return math.sqrt(sum(shares) / len(shares)), len(shares)


def _kld_difference(a: LevelReport, b: LevelReport) -> Difference:
    assert a.quality is not None
    assert b.quality is not None
    return paired_difference(a.quality.window_kld, b.quality.window_kld)


def _unbeaten(levels: list[LevelReport]) -> list[LevelReport]:
    """Levels without another one that is both faster and nearer to the reference, by the means."""
    return [
        a for a in levels if not any(_speed(b) > _speed(a) and _kld(b) < _kld(a) for b in levels)
    ]


def _passes(level: LevelReport) -> int:
    """Processes whose mean a level's speed is."""
    return next((len(request.passes) for request in level.http() if request.streams == 1), 1)


def _within(share: float) -> str:
    """A coarseness for people; it may be infinite."""
    return f"±{share:.0%}" if share < 10 else "a single repetition"


def _names(levels: list[LevelReport]) -> str:
    return ", ".join(level.quant for level in levels)


def _speed(level: LevelReport) -> float:
    return level.writing_speed().mean


def _kld(level: LevelReport) -> float:
    assert level.quality is not None
    return level.quality.kld_mean


def _kld_margin(level: LevelReport) -> float:
    """Half of the 95 % interval, with windows as the unit or tokens, whichever is wider."""
    quality = level.quality
    assert quality is not None
    if quality.kld_mean_error_windows is None:
        return math.inf
    windows = t95(quality.windows - 1) * quality.kld_mean_error_windows
    tokens = 1.96 * math.hypot(quality.kld_mean_error, quality.kld_sampling_error)
    return max(windows, tokens)
