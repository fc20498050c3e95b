"""An answer on the terminal while it comes: Markdown for people, plain text for a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Iterator

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

from worker.cli.chat_client import AnswerPiece
from worker.log import harmless, say

# Shows the pieces of one answer until they end or Ctrl-C; returns its text.
Show = Callable[[Iterator[AnswerPiece]], str]


@contextlib.contextmanager
def shows_answers() -> Generator[Show]:
    """How answers are shown where standard output leads to."""
    yield _show_markdown if sys.stdout.isatty() else _show_plain


def _show_plain(pieces: Iterator[AnswerPiece]) -> str:
    text, last = "", AnswerPiece()
    with contextlib.suppress(KeyboardInterrupt):
        for piece in pieces:
            text += piece.content
            sys.stdout.write(piece.content)
            sys.stdout.flush()
            last = _later(last, piece)
    sys.stdout.write("\n")
    sys.stdout.flush()
    _say_speed(last)
    return text


def _show_markdown(pieces: Iterator[AnswerPiece]) -> str:
    """Blocks that are whole are printed for good; the one that still grows is drawn again."""
    console = Console(highlight=False)
    text, begun, reasoning, last = "", 0, "", AnswerPiece()
    with (
        Live(
            console=console, transient=True, refresh_per_second=12, vertical_overflow="ellipsis"
        ) as live,
        contextlib.suppress(KeyboardInterrupt),
    ):
        for piece in pieces:
            last = _later(last, piece)
            if piece.reasoning:
                reasoning += piece.reasoning
                live.update(Text(_safe(reasoning), "dim italic"))
            if not piece.content:
                continue
            if reasoning:
                console.print(Text(_safe(reasoning.strip()), "dim italic"), Text(""))
                reasoning = ""
            text += piece.content
            end = block_end(text, begun)
            if end > begun:
                console.print(Markdown(_safe(text[begun:end])))
                begun = end
            live.update(Markdown(_safe(text[begun:])))
    console.print(Markdown(_safe(text[begun:])) if text else Text(_safe(reasoning), "dim italic"))
    _say_speed(last)
    return text


def block_end(text: str, begin: int) -> int:
    """Where the last whole block of Markdown behind `begin` ends: at an empty line outside of a
    fence; `begin` where none does."""
    found, at, fence = begin, begin, ""
    for line in text[begin:].splitlines(keepends=True):
        at += len(line)
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        elif not line.strip() and line.endswith("\n") and not fence:
            found = at
    return found


def _safe(text: str) -> str:
    """Text of a model without what controls a terminal."""
    return "\n".join(map(harmless, text.replace("\t", "    ").split("\n")))


def _later(last: AnswerPiece, piece: AnswerPiece) -> AnswerPiece:
    return piece if piece.tokens or piece.speed else last


def _say_speed(last: AnswerPiece) -> None:
    if last.tokens:
        speed = f", {last.speed:.1f} tokens/s" if last.speed else ""
        say(f"{last.tokens} token{'s' if last.tokens > 1 else ''}{speed}\n")
