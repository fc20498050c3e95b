"""Draws docs/house.svg: the packages of `worker` on floors, by the rule of tests/test_house.py.

python -m scripts.docs.house
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from xml.sax.saxutils import escape

from tests.test_house import ALLOWED

ROOT = Path(__file__).parent.parent.parent
PICTURE = ROOT / "docs" / "house.svg"
_TABLE = re.compile(r"^\| `worker/(\w+)/`(?:, `worker/\w+/`)* \| (.+?)[;|]", re.MULTILINE)
_WIDTH, _GAP, _NAME, _LINE = 800, 10, 28, 15
_CHAR = 6.4  # width of a letter of a description, in pixels
_STYLE = """
    .room { fill: #f4f7fb; stroke: #5b7fa6; stroke-width: 1.4 }
    .name { font-size: 15px; font-weight: 600; fill: #14263b }
    .what { font-size: 12px; fill: #2f4257 }
    @media (prefers-color-scheme: dark) {
      .room { fill: #18222e; stroke: #6d93bd }
      .name { fill: #e6edf5 } .what { fill: #b9c6d4 }
    }
"""


def floors(allowed: Mapping[str, set[str]]) -> list[list[str]]:
    """Rows from the top, packages before modules: each stands above all that it may import."""
    heights: dict[str, int] = {}
    for name in TopologicalSorter(allowed).static_order():
        heights[name] = 1 + max((heights[below] for below in allowed[name]), default=-1)
    found: dict[tuple[int, bool], list[str]] = {}
    for name, height in heights.items():
        row = -height, not (ROOT / "worker" / name).is_dir()
        found.setdefault(row, []).append(name)
    return [sorted(found[row]) for row in sorted(found)]


def picture() -> str:
    """The SVG, with what docs/architecture.md says of each package."""
    said = dict(_TABLE.findall((ROOT / "docs" / "architecture.md").read_text()))
    rooms: list[str] = []
    y = _GAP
    for floor in floors(ALLOWED):
        is_package = (ROOT / "worker" / floor[0]).is_dir()
        width = (_WIDTH - _GAP) // len(floor)
        texts = [
            textwrap.wrap(said.get(name, "").replace("`", ""), int((width - 26) / _CHAR))
            for name in floor
        ]
        height = _NAME + _LINE * max(map(len, texts)) + 4 * is_package
        for place, (name, lines) in enumerate(zip(floor, texts, strict=True)):
            rooms += _room(_GAP + place * width, y, width - _GAP, height, name, lines)
        y += height + _GAP
    title = "The packages of worker/ on floors: imports point down"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" role="img" '
        f"font-family=\"system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\">\n"
        f"  <title>{title}</title>\n  <style>{_STYLE}  </style>\n" + "\n".join(rooms) + "\n</svg>\n"
    )


def _room(x: int, y: int, width: int, height: int, name: str, lines: list[str]) -> list[str]:
    text = [
        f'  <rect class="room" x="{x}" y="{y}" width="{width}" height="{height}" rx="4"/>',
        f'  <text class="name" x="{x + 10}" y="{y + 19}">{name}</text>',
    ]
    return text + [
        f'  <text class="what" x="{x + 10}" y="{y + 36 + _LINE * number}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]


if __name__ == "__main__":
    PICTURE.write_text(picture())
