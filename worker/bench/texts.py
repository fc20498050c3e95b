"""Texts in two parts: what is chosen by, and what is measured on."""

from __future__ import annotations

_PIECE = 1500  # characters of a piece; of three, one is for the measurement


def split_texts(texts: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """The parts for the matrix and the probes, and the text that nothing is chosen by.

    Every third piece of some lines is kept for that: a text's end may be of another kind than its
    beginning.
    """
    first, rest = list[str](), list[str]()
    for text in texts:
        pieces = [""]
        for line in text.splitlines(keepends=True):
            if len(pieces[-1]) >= _PIECE:
                pieces.append("")
            pieces[-1] += line
        rest += pieces[2::3]
        del pieces[2::3]
        first.append("".join(pieces))
    return tuple(first), "".join(rest)
