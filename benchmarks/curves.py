"""A small picture: two curves over one axis, several panels beside each other, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, GAP = 420, 260, 70
COLOURS = ("#1f6feb", "#d1572b")


@dataclass(frozen=True)
class Curve:
    """Values over x; x is drawn on a logarithmic axis, y from 0."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def draw(title: str, panels: Sequence[tuple[str, Curve, Curve]]) -> str:
    """One SVG; each panel is (caption, curve of the left axis, curve of the right axis)."""
    width = len(panels) * (WIDTH + 2 * GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + 120}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{HEIGHT + 120}" fill="#ffffff"/>',
        f'<text x="{width / 2}" y="24" text-anchor="middle" font-size="16">{title}</text>',
    ]
    for index, (caption, left, right) in enumerate(panels):
        x0 = GAP + index * (WIDTH + 2 * GAP)
        parts.append(f'<g transform="translate({x0},50)">')
        parts.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>')
        parts.append(
            f'<text x="{WIDTH / 2}" y="{HEIGHT + 44}" text-anchor="middle">{caption}</text>'
        )
        for value in left.x:
            at = _along(value, left.x)
            parts.append(
                f'<text x="{at:.1f}" y="{HEIGHT + 20}" text-anchor="middle">{value:g}</text>'
            )
        for side, curve in enumerate((left, right)):
            parts += _curve(curve, side)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _curve(curve: Curve, side: int) -> list[str]:
    top = _nice(max(curve.y))
    colour = COLOURS[side]
    x, anchor = (-8, "end") if side == 0 else (WIDTH + 8, "start")
    parts = [
        f'<text x="{x}" y="{HEIGHT - share * HEIGHT + 4:.1f}" text-anchor="{anchor}" '
        f'fill="{colour}">{top * share:.3g}</text>'
        for share in (0, 0.25, 0.5, 0.75, 1)
    ]
    parts.append(
        f'<text x="{0 if side == 0 else WIDTH}" y="-8" fill="{colour}" '
        f'text-anchor="{"start" if side == 0 else "end"}">{curve.name}</text>'
    )
    points = [
        (_along(a, curve.x), HEIGHT - b / top * HEIGHT)
        for a, b in zip(curve.x, curve.y, strict=True)
    ]
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{colour}"/>' for a, b in points]
    return parts


def _along(value: float, values: Sequence[float]) -> float:
    low, high = math.log(min(values)), math.log(max(values))
    return 20 + (WIDTH - 40) * ((math.log(value) - low) / ((high - low) or 1))


def _nice(value: float) -> float:
    """The next of 1, 1.5, 2, 3, 4, 5, 8 times a power of ten."""
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 8, 10) if step * power >= value)
