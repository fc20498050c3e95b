"""The start of servers as a picture: until when they were silent, until when they were loading."""

from __future__ import annotations

from typing import Any

_WIDTH, _LEFT, _ROW = 560, 150, 22
_STAGES = (
    ("answered_s", "#d0d7de", "until /health answers"),
    ("ready_s", "#1f6feb", "until ready"),
)
_PART = "#8250df"


def drawing(models: dict[str, dict[str, dict[str, Any]]]) -> str:
    """One SVG: model -> server -> its figures, as `benchmarks/startup/` measures them."""
    longest = max(figures["ready_s"] for peers in models.values() for figures in peers.values())
    scale = _WIDTH / longest
    rows: list[str] = []
    y = 76
    for model, peers in models.items():
        rows.append(f'<text x="12" y="{y}" font-weight="bold">{model}</text>')
        y += 10
        for peer, figures in peers.items():
            rows += _bar(y, peer, figures, scale)
            y += _ROW
        for name, seconds in peers["worker"]["parts"].items():
            width = max(1.0, seconds * scale)
            rows.append(_label(y, name))
            rows.append(_rect(_LEFT, y, width, _PART, 8))
            rows.append(_seconds(_LEFT + width, y, seconds))
            y += _ROW - 4
        y += 34
    height, width = y, _LEFT + _WIDTH + 70
    legend = "".join(
        f'<rect x="{_LEFT + 170 * i}" y="36" width="12" height="12" fill="{colour}"/>'
        f'<text x="{_LEFT + 18 + 170 * i}" y="47">{text}</text>'
        for i, (colour, text) in enumerate(
            [*((colour, text) for _, colour, text in _STAGES), (_PART, "parts; some overlap")]
        )
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="13">',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            f'<text x="{width / 2}" y="22" text-anchor="middle" font-size="16">'
            "Seconds from spawn to ready</text>",
            legend,
            *rows,
            "</svg>",
            "",
        ]
    )


def _bar(y: int, peer: str, figures: dict[str, Any], scale: float) -> list[str]:
    parts, begin = [_label(y, peer)], 0.0
    for key, colour, _ in _STAGES:
        parts.append(
            _rect(_LEFT + begin * scale, y, (figures[key] - begin) * scale, colour, _ROW - 6)
        )
        begin = figures[key]
    return [*parts, _seconds(_LEFT + begin * scale, y, begin)]


def _label(y: float, text: str) -> str:
    return f'<text x="{_LEFT - 8}" y="{y + 12}" text-anchor="end">{text}</text>'


def _rect(x: float, y: float, width: float, colour: str, height: int) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>'


def _seconds(x: float, y: float, seconds: float) -> str:
    return f'<text x="{x + 6:.1f}" y="{y + 12}">{seconds:.2f}</text>'
