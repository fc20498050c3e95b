"""A run as a picture: memory, descriptors and threads, clients, over one axis of minutes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from checks.soak.soaked import DraftSlot
from checks.soak.verdict import MB, Soaking

WIDTH, HEIGHT = 720, 130
_LEFT, _TOP, _GAP = 70, 60, 46
_BLUE, _RED, _GREY = "#1f6feb", "#d1572b", "#8a8f98"

_Curve = tuple[str, str, list[float]]  # name, colour, values


def drawing(title: str, samples: Sequence[DraftSlot], warm_up: float, verdict: Soaking) -> str:
    """The SVG. Grey: the warm-up, in seconds; red in the first panel: the slope behind it."""
    minutes = [sample.seconds / 60 for sample in samples]
    panels: list[tuple[str, list[_Curve]]] = [
        ("anonymous memory, MB", [("", _BLUE, [s.anonymous / MB for s in samples])]),
        ("", [("descriptors", _BLUE, [float(s.descriptors) for s in samples]),
              ("threads", _RED, [float(s.threads) for s in samples])]),
        ("clients so far", [("", _BLUE, [float(s.clients) for s in samples])]),
    ]  # fmt: skip
    width, height = WIDTH + _LEFT + 30, _TOP + len(panels) * (HEIGHT + _GAP) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{width / 2}" y="24" text-anchor="middle" font-size="16">{escape(title)}</text>',
    ]
    end = max(*minutes, 1e-9)
    for number, (caption, curves) in enumerate(panels):
        top = _ticks(1.05 * max(1.0, *(value for _, _, values in curves for value in values)))[-1]
        parts.append(f'<g transform="translate({_LEFT},{_TOP + number * (HEIGHT + _GAP)})">')
        parts.append(
            f'<rect width="{min(warm_up / 60 / end, 1) * WIDTH:.1f}" height="{HEIGHT}" '
            'fill="#eef0f3"/>'
        )
        parts += _axes(end, top)
        shift = 0
        for name, colour, values in [(caption, "#000000", []), *curves]:
            parts.append(f'<text x="{shift}" y="-6" fill="{colour}">{name}</text>')
            shift += 8 * len(name) + (12 if name else 0)
            parts.append(_line(minutes, values, end, top, colour))
        if number == 0:
            parts.append(_trend(minutes, curves[0][2], warm_up / 60, verdict, end, top))
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _ticks(most: float) -> list[float]:
    """Round numbers from 0, three to six of them; the last one is not below `most`."""
    power = 10 ** math.floor(math.log10(most))
    step = next(n * power for n in (0.2, 0.5, 1.0, 2.0, 5.0) if 5 * n * power >= most)
    return [number * step for number in range(math.ceil(most / step - 1e-9) + 1)]


def _axes(end: float, top: float) -> list[str]:
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="{_GREY}"/>']
    for value in _ticks(top):
        y = HEIGHT * (1 - value / top)
        parts.append(f'<text x="-8" y="{y + 4:.1f}" text-anchor="end">{value:,.10g}</text>')
    for value in _ticks(end):
        if value <= end:
            x, unit = value / end * WIDTH, "" if value else " min"
            parts.append(
                f'<text x="{x:.1f}" y="{HEIGHT + 18}" text-anchor="middle">{value:g}{unit}</text>'
            )
    return parts


def _line(
    x: Sequence[float], y: Sequence[float], end: float, top: float, colour: str, style: str = ""
) -> str:
    points = zip(x, y, strict=False)
    places = " ".join(f"{a / end * WIDTH:.1f},{(1 - b / top) * HEIGHT:.1f}" for a, b in points)
    return f'<polyline points="{places}" fill="none" stroke="{colour}" {style}/>'


def _trend(
    minutes: Sequence[float], memory: Sequence[float], warm_up: float, verdict: Soaking,
    end: float, top: float,
) -> str:  # fmt: skip
    """The line of the slope through the middle of what it was fitted to."""
    later = [(a, b) for a, b in zip(minutes, memory, strict=True) if a >= warm_up]
    if verdict.slope is None:
        return ""
    slope = verdict.slope.middle / 60
    rests = sorted(b - slope * a for a, b in later)
    base = rests[len(rests) // 2]
    ends = [later[0][0], later[-1][0]]
    told = (
        f"{verdict.slope.middle:+.2f} MB an hour ({verdict.slope.low:+.2f} to "
        f"{verdict.slope.high:+.2f})"
    )
    text = f'<text x="{WIDTH - 8}" y="-6" text-anchor="end" fill="{_RED}">{told}</text>'
    style = 'stroke-width="2" stroke-dasharray="6 3"'
    return _line(ends, [base + slope * a for a in ends], end, top, _RED, style) + text
