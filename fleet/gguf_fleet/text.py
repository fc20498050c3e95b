"""How the fleet writes numbers and foreign text for people."""

from __future__ import annotations


def human_bytes(count: int) -> str:
    """1610612736 -> '1.5 GiB'."""
    size, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.1f} {unit}" if unit != "B" else f"{count} B"


def harmless(text: str) -> str:
    """The text in one line without characters that control a terminal."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
