"""Bars and sparklines, also for terminals that know ASCII only."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

_LEVELS, _ASCII_LEVELS = "▁▂▃▄▅▆▇█", "_.,-=+*#"


class Glyphs:
    """What is drawn with: block characters, or ASCII where the terminal's encoding has no more."""

    def __init__(self, *, ascii_only: bool) -> None:
        self._levels = _ASCII_LEVELS if ascii_only else _LEVELS
        self._full, self._half, self._empty = "#+." if ascii_only else "█▓░"

    def bar(self, shares: Sequence[tuple[float, str]], width: int) -> Text:
        """`width` cells: of each (share, style) as many as it is of 1; the rest is empty.

        What is above 0 gets a cell at least, as long as there is one.
        """
        text, left = Text(), width
        for index, (share, style) in enumerate(shares):
            wanted = round(max(0.0, min(1.0, share)) * width)
            count = min(left, max(wanted, 1 if share > 0 else 0))
            text.append((self._half if index else self._full) * count, style)
            left -= count
        return text.append(self._empty * left, "bright_black")

    def sparkline(self, values: Sequence[float], width: int) -> str:
        """The last `width` values against the largest of them; spaces where there are fewer."""
        shown = [max(0.0, value) for value in values[-width:]] if width > 0 else []
        most = max(shown, default=0.0)
        top = len(self._levels) - 1
        drawn = (self._levels[round(value / most * top) if most else 0] for value in shown)
        return "".join(drawn).rjust(max(0, width))
