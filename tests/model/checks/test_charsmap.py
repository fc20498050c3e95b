"""Tables of T5's tokenizer whose walk would lead out of them."""

from __future__ import annotations

import struct

import pytest

from checks.fuzz.tokenizers import charsmap
from worker.model.checks.tokenizer import MAX_BYTES, charsmap_problem

_A = 256 ^ ord("A")  # where the walk is after `A`


def table(**words: int) -> bytes:
    """The sound table with other nodes: `root=`, `letter=`, `value=`."""
    data = bytearray(charsmap())
    places = {"root": 0, "letter": _A, "value": _A ^ 1}
    for name, word in words.items():
        struct.pack_into("<I", data, 4 + 4 * places[name], word)
    return bytes(data)


def test_a_sound_table() -> None:
    """It is taken, and so is one without nodes."""
    assert charsmap_problem(charsmap()) == ""
    assert charsmap_problem(b"\0\0\0\0a\0") == ""


LETTER = ord("A")


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(table(root=512 << 10), id="the first byte leads out"),
        pytest.param(table(root=(1 << 20) << 10), id="far out"),
        pytest.param(table(root=2 << 10 | 1 << 9), id="out by the shifted base"),
        pytest.param(table(letter=LETTER | 1 << 8 | 4096 << 10), id="the replacement is outside"),
        pytest.param(table(letter=LETTER | 4096 << 10), id="the second byte leads out"),
        pytest.param(table(value=1 << 31 | 2), id="behind the last text"),
        pytest.param(charsmap()[:-1], id="a text without an end"),
        pytest.param(charsmap() + bytes(MAX_BYTES), id="too large"),
    ],
)
def test_a_walk_that_leads_out(raw: bytes) -> None:
    """The table is refused, though all its lengths are right."""
    assert charsmap_problem(raw)
