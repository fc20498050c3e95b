"""`python -m benchmarks.turns PEERS.json OUT.svg`: time to first token in each turn, drawn.

PEERS.json is the last line that `python -m benchmarks.peers` prints, with the cases
`conversations` and `restarted`.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers.cases.conversations import TURNS

_WIDTH, _HEIGHT, _LEFT, _TOP = 300, 220, 64, 64
_COLOURS = {"worker": "#1f6feb", "llama-server": "#d1572b"}
_CAPTIONS = {
    "conversations": "more conversations than cells",
    "restarted": "restarted after each turn (--cache-dir)",
}


def main() -> None:
    """Read, draw, write."""
    source, target = map(Path, sys.argv[1:])
    found = json.loads(source.read_text().splitlines()[-1])
    target.write_text(drawing(found["samples"]))


def drawing(samples: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    """One SVG with a panel for each case; seconds upwards, turns to the right."""
    width = len(_CAPTIONS) * (_WIDTH + _LEFT + 24)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT + 130}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{_HEIGHT + 130}" fill="#ffffff"/>',
        f'<text x="{width / 2}" y="24" text-anchor="middle" font-size="16">'
        "Seconds to the first token, by turn of the conversation</text>",
    ]
    for index, case in enumerate(_CAPTIONS):
        series = {peer: _medians(rounds) for peer, rounds in samples[case].items()}
        x = _LEFT + index * (_WIDTH + _LEFT + 24)
        parts += [f'<g transform="translate({x},{_TOP})">', *_panel(case, series), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _medians(rounds: list[dict[str, Any]]) -> list[float]:
    turns = range(1, TURNS + 1)
    return [statistics.median(each[f"ttft_{turn}_s"] for each in rounds) for turn in turns]


def _panel(case: str, series: dict[str, list[float]]) -> list[str]:
    top = max(max(values) for values in series.values()) * 1.1
    parts = [
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#999"/>',
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 44}" text-anchor="middle">{_CAPTIONS[case]}</text>',
    ]
    parts += [
        f'<text x="{_x(turn):.0f}" y="{_HEIGHT + 20}" text-anchor="middle">{turn + 1}</text>'
        for turn in range(TURNS)
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _HEIGHT * (1 - share)
        parts.append(f'<text x="-8" y="{y + 4:.0f}" text-anchor="end">{top * share:.2g}</text>')
    for place, (peer, values) in enumerate(series.items()):
        colour = _COLOURS.get(peer, "#6e7781")
        points = [(_x(i), _HEIGHT * (1 - value / top)) for i, value in enumerate(values)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
        parts.append(
            f'<text x="{_WIDTH - 110}" y="{20 + 18 * place}" fill="{colour}">{peer}</text>'
        )
    return parts


def _x(turn: int) -> float:
    return 24 + turn * (_WIDTH - 48) / (TURNS - 1)


if __name__ == "__main__":
    main()
