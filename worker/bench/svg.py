"""Quality against speed, with size as area and the Pareto line: an SVG file written by hand."""

from __future__ import annotations

import math
from typing import NamedTuple

from worker.bench.escaping import escape
from worker.bench.results import LevelReport, Report
from worker.machine import human_bytes

WIDTH, HEIGHT = 760, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 24, 40, 56
_LARGEST = 26.0  # radius of the largest file, pixels
_LABEL = 24  # characters of a name that are drawn
# Of both colour schemes; the page's and a picture's own.
STYLE = """
.plot{font:12px system-ui,sans-serif;fill:#1c1c1c}
.plot .back{fill:#fff}
.plot .grid{stroke:#ddd;stroke-width:1}
.plot .axis{stroke:#777;stroke-width:1}
.plot .dot{fill:#4a78c2;fill-opacity:.45;stroke:#2b5597}
.plot .chosen{fill:#3f9b57;fill-opacity:.6;stroke:#23703a}
.plot .front{fill:none;stroke:#b35a00;stroke-width:1.5;stroke-dasharray:5 3}
.plot .error{stroke:#777;stroke-width:1}
.plot .title{font-size:14px;font-weight:600}
@media (prefers-color-scheme:dark){
.plot{fill:#e6e6e6}
.plot .back{fill:#16181c}
.plot .grid{stroke:#33363c}
.plot .axis,.plot .error{stroke:#999}
.plot .dot{fill:#6f9ae0;stroke:#9dbcf0}
.plot .chosen{fill:#57b972;stroke:#8fdba4}
.plot .front{stroke:#e59a4d}
}
"""


def svg(report: Report, *, styled: bool = True) -> str:
    """The plot; without quality figures, bits per weight stand on the vertical axis."""
    levels = [level for level in report.levels if level.speed is not None]
    scored = [level for level in levels if level.quality is not None]
    plot = _Plot(scored or levels, by_quality=bool(scored))
    body = plot.draw(report) if plot.levels else [_text(WIDTH / 2, HEIGHT / 2, "no results")]
    style = f"<style>{STYLE}</style>" if styled else ""
    title = escape(f"{report.model}: {plot.vertical} against speed")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
        f"<title>{title}</title>{style}"
        f'<rect class="back" width="{WIDTH}" height="{HEIGHT}"/>{"".join(body)}</svg>\n'
    )


class _Box(NamedTuple):
    """Where a label begins, the middle of its line, and how wide it is."""

    x: float
    y: float
    width: float

    def meets(self, other: _Box) -> bool:
        """Whether the two would be drawn over each other."""
        beside = self.x + self.width < other.x or other.x + other.width < self.x
        return not beside and abs(self.y - other.y) < 13


def _place(text: str, x: float, y: float, radius: float, reach: float, taken: list[_Box]) -> _Box:
    """To the right of the dot, to its left, above or below: the first place that is free.

    reach: to the sides, of the dot and of its error
    """
    width = 7.5 * len(text)
    places = [
        _Box(x + reach + 4, y, width),
        _Box(x - reach - 4 - width, y, width),
        _Box(x - width / 2, y - radius - 9, width),
        _Box(x - width / 2, y + radius + 9, width),
    ]
    inside = [place for place in places if place.x > _LEFT and place.x + width < WIDTH]
    free = [place for place in inside if not any(place.meets(other) for other in taken)]
    return (free or inside or places)[0]


class _Plot:
    """Scales: tokens a second to the right, divergence (logarithmic) or bits upwards."""

    def __init__(self, levels: list[LevelReport], *, by_quality: bool) -> None:
        self.levels, self.by_quality = levels, by_quality
        self.vertical = "KL divergence" if by_quality else "bits per weight"
        if not levels:
            return
        speeds = [_speed(level) for level in levels]
        self._fastest = max(speeds) * 1.12 or 1.0
        values = [self._value(level) for level in levels]
        self._low, self._high = min(values), max(values)
        if self._high - self._low < 1e-9:
            self._low, self._high = self._low - 1, self._high + 1
        space = (self._high - self._low) * 0.12
        self._low, self._high = self._low - space, self._high + space
        self._largest = max(level.size_bytes for level in levels)

    def _value(self, level: LevelReport) -> float:
        """What is drawn upwards: less divergence is higher."""
        if not self.by_quality:
            return level.bpw
        assert level.quality is not None
        # The reference diverges by nothing, which a logarithm cannot show.
        least = min(
            (other.quality.kld_mean for other in self.levels
             if other.quality and other.quality.kld_mean > 1e-7 and not other.is_reference),
            default=1e-4,
        )  # fmt: skip
        floor = least / 3
        return -math.log10(max(level.quality.kld_mean, floor))

    def x(self, speed: float) -> float:
        """Tokens a second to pixels."""
        return _LEFT + speed / self._fastest * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Vertical value to pixels."""
        share = (value - self._low) / (self._high - self._low)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)

    def draw(self, report: Report) -> list[str]:
        """Axes, the line through the front, a dot for each level."""
        parts = [_text(_LEFT, 24, report.model, "title", anchor="start"), *self._axes()]
        front = self._front()
        if len(front) > 1:
            places = (f"{self.x(_speed(lv)):.1f},{self.y(self._value(lv)):.1f}" for lv in front)
            parts.append(f'<polyline class="front" points="{" ".join(places)}"/>')
        labels: list[_Box] = []
        for level in self.levels:
            parts += self._dot(level, report.verdict.recommended, labels)
        return parts

    def _front(self) -> list[LevelReport]:
        """Levels than which none is both faster and higher up, the fastest first."""
        front: list[LevelReport] = []
        for level in sorted(self.levels, key=lambda lv: (-_speed(lv), -self._value(lv))):
            if not front or self._value(level) > self._value(front[-1]):
                front.append(level)
        return front

    def _dot(self, level: LevelReport, recommended: str | None, labels: list[_Box]) -> list[str]:
        speed, error = _speed(level), _error(level)
        x, y = self.x(speed), self.y(self._value(level))
        radius = max(4.0, _LARGEST * math.sqrt(level.size_bytes / self._largest))
        kind = "dot chosen" if level.quant == recommended else "dot"
        told = [level.quant, human_bytes(level.size_bytes), f"{speed:.1f} ± {error:.1f} tokens/s"]
        if level.quality is not None:
            told.append(f"KL divergence {abs(level.quality.kld_mean):.5f}")
        left = self.x(max(0.0, speed - error))
        right = min(self.x(speed + error), WIDTH - _RIGHT)
        name = level.quant[:_LABEL]
        if self.by_quality and level.is_reference:
            name += " (0)"  # which a logarithmic axis has no place for
        label = _place(name, x, y, radius, max(radius, right - x), labels)
        labels.append(label)
        return [
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">'
            f"<title>{escape(', '.join(told))}</title></circle>",
            f'<line class="error" x1="{left:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}"/>',
            _text(label.x, label.y + 4, name, anchor="start"),
        ]

    def _axes(self) -> list[str]:
        parts: list[str] = []
        bottom = HEIGHT - _BOTTOM
        for value in _round_steps(0.0, self._fastest):
            x = self.x(value)
            parts.append(
                f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}"/>'
            )
            parts.append(_text(x, bottom + 18, f"{value:g}"))
        for value, label in self._vertical_steps():
            y = self.y(value)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}"/>'
            )
            parts.append(_text(_LEFT - 8, y + 4, label, anchor="end"))
        parts.append(
            f'<line class="axis" x1="{_LEFT}" y1="{bottom}" x2="{WIDTH - _RIGHT}" y2="{bottom}"/>'
        )
        where = "tokens/s of one stream; area: size of the file; dashed: the best at each speed"
        parts.append(_text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 14, where))
        named = f"{self.vertical}{', nats (upwards is better)' if self.by_quality else ''}"
        middle = (_TOP + bottom) / 2
        parts.append(
            f'<text x="18" y="{middle:.0f}" text-anchor="middle" '
            f'transform="rotate(-90 18 {middle:.0f})">{escape(named)}</text>'
        )
        return parts

    def _vertical_steps(self) -> list[tuple[float, str]]:
        if not self.by_quality:
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


def _round_steps(low: float, high: float) -> list[float]:
    """About six round numbers from low to high."""
    raw = (high - low) / 6 or 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    first = math.ceil(low / step)
    return [i * step for i in range(first, int(high / step) + 1)]


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _speed(level: LevelReport) -> float:
    assert level.speed is not None
    return level.speed.decode().mean


def _error(level: LevelReport) -> float:
    assert level.speed is not None
    return level.speed.decode().error
