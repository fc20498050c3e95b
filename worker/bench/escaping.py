"""Text of files and of the command line, made harmless in the documents that show it."""

from __future__ import annotations

import html


def shown(text: str) -> str:
    """Without characters that no document may hold, or that steer a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def escape(text: str) -> str:
    """For HTML and SVG, also inside of attributes."""
    return html.escape(shown(text))


def escape_markdown(text: str) -> str:
    """For Markdown, also inside of a table, and for the HTML that it becomes."""
    for char in "\\`*_[]|":
        text = text.replace(char, f"\\{char}")
    return html.escape(shown(text), quote=False).replace("\n", " ")
