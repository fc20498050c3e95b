"""The plots of a report: quality against speed, size as area, the best levels joined by a line;
and quality against size, fits joined.

Here places are computed; `plot.svg.j2` draws them. All lengths are pixels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from worker.bench.figures import Figure, figure
from worker.bench.report import BenchReport, LevelReport
from worker.machine import human_bytes

_LABEL = 24  # characters of a name that are drawn


class Tick(NamedTuple):
    """A round number of an axis, and its place."""

    at: float
    label: str


class Label(NamedTuple):
    """Where a name begins, the middle of its line, and how wide it is."""

    x: float
    y: float
    width: float

    def meets(self, other: Label) -> bool:
        """Whether the two would be drawn over each other."""
        beside = self.x + self.width < other.x or other.x + other.width < self.x
        return not beside and abs(self.y - other.y) < 13


class Dot(NamedTuple):
    """One level: `error` are the ends of its speed's error, `told` is its tooltip."""

    x: float
    y: float
    radius: float
    is_chosen: bool
    is_fit: bool
    error: tuple[float, float]
    label: Label
    name: str
    told: str


class Drawing:
    """The places of a report: tokens a second to the right, divergence (logarithmic) upwards.

    limit  divergence that a recommended level may have; levels below the line are too far
    Without quality figures, bits per weight stand on the vertical axis.
    """

    width, height = 760, 440
    left, right, top, bottom = 76, 736, 40, 384
    radii = 4.0, 26.0  # of the smallest and the largest file
    against = "speed"
    horizontal = "tokens/s of one stream; area: size of the file; dashed: the best at each speed"

    def __init__(self, report: BenchReport) -> None:
        measured = self._levels_of(report)
        scored = [level for level in measured if level.quality is not None]
        self._levels, self._by_quality = scored or measured, bool(scored)
        self.model = report.model
        self.vertical = "KL divergence" if scored else "bits per weight"
        self.unit = ", nats (upwards is better)" if scored else ""
        self.dots: list[Dot] = []
        self.front: list[tuple[float, float]] = []
        self.limit: Tick | None = None
        self.across: list[Tick] = []
        self.upwards: list[Tick] = []
        if self._levels:
            self._limit = -math.log10(report.max_kld)
            self._scale()
            if self._by_quality:
                self.limit = Tick(self._y(self._limit), f"limit {report.max_kld:g}")
            self.across = [Tick(self._x(v), f"{v:g}") for v in _round_steps(0.0, self._farthest)]
            self.upwards = [Tick(self._y(v), label) for v, label in self._steps()]
            joined = self._line()
            if len(joined) > 1:
                self.front = [self._place(level) for level in joined]
            for level in self._levels:
                self.dots.append(self._dot(level, report.verdict.recommended))

    def _levels_of(self, report: BenchReport) -> list[LevelReport]:
        return [level for level in report.levels if level.speed is not None]

    def _across(self, level: LevelReport) -> Figure:
        """What is drawn to the right."""
        return level.writing_speed()

    def _facts(self, level: LevelReport) -> str:
        speed = level.writing_speed()
        return f"{speed.mean:.1f} ± {speed.error:.1f} tokens/s"

    def _scale(self) -> None:
        """The range of both axes, with some room at their ends."""
        self._farthest = max(self._across(level).mean for level in self._levels) * 1.12 or 1.0
        values = [self._value(level) for level in self._levels]
        if self._by_quality:
            values.append(self._limit)
        low, high = min(values), max(values)
        if high - low < 1e-9:
            low, high = low - 1, high + 1
        space = (high - low) * 0.12
        self._low, self._high = low - space, high + space
        self._largest = max(level.size_bytes for level in self._levels)

    def _value(self, level: LevelReport) -> float:
        """What is drawn upwards: less divergence is higher."""
        if not self._by_quality:
            return level.bpw
        assert level.quality is not None
        # The reference diverges by nothing, which a logarithm cannot show.
        least = min(
            (
                other.quality.kld_mean
                for other in self._levels
                if other.quality and other.quality.kld_mean > 1e-7 and not other.is_reference
            ),
            default=1e-4,
        )
        return -math.log10(max(level.quality.kld_mean, least / 3))

    def _x(self, value: float) -> float:
        return round(self.left + value / self._farthest * (self.right - self.left), 1)

    def _y(self, value: float) -> float:
        share = (value - self._low) / (self._high - self._low)
        return round(self.bottom - share * (self.bottom - self.top), 1)

    def _place(self, level: LevelReport) -> tuple[float, float]:
        return self._x(self._across(level).mean), self._y(self._value(level))

    def _line(self) -> list[LevelReport]:
        """Levels without another one that is both faster and higher up, the fastest first."""
        front: list[LevelReport] = []
        for level in sorted(
            self._levels, key=lambda lv: (-lv.writing_speed().mean, -self._value(lv))
        ):
            if not front or self._value(level) > self._value(front[-1]):
                front.append(level)
        return front

    def _dot(self, level: LevelReport, recommended: str | None) -> Dot:
        x, y = self._place(level)
        radius = max(self.radii[0], self.radii[1] * math.sqrt(level.size_bytes / self._largest))
        told = [level.quant, human_bytes(level.size_bytes), self._facts(level)]
        if level.quality is not None:
            told.append(f"KL divergence {abs(level.quality.kld_mean):.5f}")
        value = self._across(level)
        error = (
            self._x(max(0.0, value.mean - value.error)),
            min(self._x(value.mean + value.error), self.right),
        )
        name = level.quant[:_LABEL]
        if self._by_quality and level.is_reference:
            name += " (0)"  # which a logarithmic axis has no place for
        label = self._label(name, x, y, radius, max(radius, error[1] - x))
        is_chosen = level.quant == recommended
        is_fit = level.fit is not None
        return Dot(x, y, round(radius, 1), is_chosen, is_fit, error, label, name, ", ".join(told))

    def _label(self, text: str, x: float, y: float, radius: float, reach: float) -> Label:
        """To the right of a dot, to its left, above or below: the first place that is free.

        reach: to the sides, of the dot and of its error
        """
        width = 7.5 * len(text)
        corners = [
            (x + reach + 4, y),
            (x - reach - 4 - width, y),
            (x - width / 2, y - radius - 9),
            (x - width / 2, y + radius + 9),
        ]
        places = [Label(round(a, 1), round(b, 1), width) for a, b in corners]
        inside = [place for place in places if place.x > self.left and place.x + width < self.width]
        free = [p for p in inside if not any(p.meets(dot.label) for dot in self.dots)]
        return (free or inside or places)[0]

    def _steps(self) -> list[tuple[float, str]]:
        """Round numbers of the vertical axis, with what they are called."""
        if not self._by_quality:
            return [(v, f"{v:g}") for v in _round_steps(max(0.0, self._low), self._high)]
        steps: list[tuple[float, str]] = []
        for power in range(-9, 3):
            for digit in (1, 2, 5):
                value = -math.log10(digit * 10.0**power)
                if self._low <= value <= self._high:
                    steps.append((value, f"{digit * 10.0**power:.3g}"))
        return (
            steps if len(steps) <= 9 else [step for step in steps if step[1].strip("0.e-") == "1"]
        )


class SizeDrawing(Drawing):
    """Divergence against size: the reference, which diverges by nothing, is left out."""

    height, bottom = 340, 284
    radii = 5.0, 5.0
    against = "size"
    horizontal = "MiB of the file; dashed: fits"

    def _levels_of(self, report: BenchReport) -> list[LevelReport]:
        return [level for level in report.levels if level.quality and not level.is_reference]

    def _across(self, level: LevelReport) -> Figure:
        return figure([level.size_bytes / 2**20])

    def _facts(self, level: LevelReport) -> str:
        return f"{level.bpw:.2f} bits per weight"

    def _line(self) -> list[LevelReport]:
        fits = [level for level in self._levels if level.fit is not None]
        return sorted(fits, key=lambda level: level.size_bytes)


def _round_steps(low: float, high: float) -> list[float]:
    """About six round numbers from low to high."""
    raw = (high - low) / 6 or 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    first = math.ceil(low / step)
    return [i * step for i in range(first, int(high / step) + 1)]
