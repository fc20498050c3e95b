"""A slot's file: all of it comes back, and nothing wrong is believed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from tests.cache.states import ROW_BYTES, FakeState, ints, rest_of
from worker.cache.slot_file import KeptSequence, read_slot, write_slot
from worker.cache.state import BLOCK

WHOSE = b"m" * 32
BIG = 1 << 30
HEADER = 6 + 2 + 32 + 12
CHECKSUM = 32
TOKENS = list(range(100, 250))


def sequence(tokens: list[int], *places: int, row_bytes: int = ROW_BYTES) -> KeptSequence:
    """As it is kept, with rests after so many of its tokens."""
    state, count = FakeState(tokens), len(tokens)
    stops = [(begin, min(begin + BLOCK, count)) for begin in range(0, count, BLOCK)]
    parts = [state.rows(*stop) if row_bytes else np.empty(0, np.uint8) for stop in stops]
    rests = [(place, rest_of(tokens[:place], 10 + place)) for place in places]
    return KeptSequence(b"key", ints(tokens), count, parts, rests)


def read(path: Path, row_bytes: int = ROW_BYTES, most_bytes: int = BIG) -> KeptSequence:
    return read_slot(path, WHOSE, row_bytes, 1_000, most_bytes)[0]


@pytest.mark.parametrize("row_bytes", [0, ROW_BYTES])
@pytest.mark.parametrize("places", [(), (150,), (1, 64, 146, 150)])
def test_all_comes_back(tmp_path: Path, places: tuple[int, ...], row_bytes: int) -> None:
    """Tokens, rows, and the rests at their places."""
    kept = sequence(TOKENS, *places, row_bytes=row_bytes)
    size = write_slot(tmp_path / "a", WHOSE, kept)
    found = read(tmp_path / "a", row_bytes)
    assert size == (tmp_path / "a").stat().st_size
    assert (found.key, found.tokens.tolist(), found.num_tokens) == (b"key", TOKENS, len(TOKENS))
    assert [place for place, _ in found.rests] == list(places)
    for (_, one), (_, other) in zip(found.rests, kept.rests, strict=True):
        assert np.array_equal(one, other)
    assert len(found.parts) == len(kept.parts)
    assert all(map(np.array_equal, found.parts, kept.parts))


def changed(data: bytes, at: int, new: bytes) -> bytes:
    """With other bytes, and the checksum that belongs to them."""
    data = data[:at] + new + data[at + len(new) :]
    head, body = data[:HEADER], data[HEADER + CHECKSUM :]
    return head + hashlib.blake2b(head + body, digest_size=CHECKSUM).digest() + body


def test_a_forged_file(tmp_path: Path) -> None:
    """Counts and lengths that do not fit are refused before memory is taken for them, though the
    checksum is right."""
    path = tmp_path / "a"
    write_slot(path, WHOSE, sequence(TOKENS, 64, 146, 150))
    good = path.read_bytes()
    places = HEADER + CHECKSUM + len(b"key") + 4 * len(TOKENS)
    words = {name: value.to_bytes(4, "little") for name, value in {
        "none": 0, "one": 1, "more": 151, "huge": 2**32 - 1}.items()}  # fmt: skip
    cases = [(at, word) for at in (HEADER - 12, HEADER - 8, HEADER - 4) for word in words.values()]
    cases += [(at, word) for at in (places, places + 12, places + 24) for word in words.values()]
    cases += [(places + 4 + 12 * i, b"\xff" * 8) for i in range(3)]
    cases += [(places + 11, b"\x80"), (places, (146).to_bytes(4, "little"))]
    refused = 0
    for at, new in cases:
        path.write_bytes(changed(good, at, new))
        if (at, new) == (places, words["one"]):  # another place that is possible
            assert [place for place, _ in read(path).rests] == [1, 146, 150]
            continue
        with pytest.raises(ValueError, match=r"it has|wrong|ended early"):
            read(path)
        refused += 1
    assert refused == len(cases) - 1
    path.write_bytes(changed(good, 0, b""))
    assert read(path).num_tokens == len(TOKENS)


def test_every_cut_and_every_flip(tmp_path: Path) -> None:
    """No damage is read as something else."""
    path = tmp_path / "a"
    write_slot(path, WHOSE, sequence(TOKENS[:70], 33, 70))
    good = path.read_bytes()
    for at in range(0, len(good), 7):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :]):
            path.write_bytes(bad)
            with pytest.raises(ValueError, match=r"\w"):
                read(path)


def test_more_than_may_be_cached(tmp_path: Path) -> None:
    """A file is not read that is larger, a hole in the disk that is as large as it says too."""
    path = tmp_path / "a"
    size = write_slot(path, WHOSE, sequence(TOKENS, 150))
    assert read(path, most_bytes=size).num_tokens == len(TOKENS)
    with pytest.raises(ValueError, match=f"cached, {size - 1} bytes"):
        read(path, most_bytes=size - 1)
    places = HEADER + CHECKSUM + len(b"key") + 4 * len(TOKENS)
    grown = changed(path.read_bytes(), places + 4, (1 << 40).to_bytes(8, "little"))
    path.write_bytes(grown)
    os.truncate(path, len(grown) - (10 + 150) + (1 << 40))
    with pytest.raises(ValueError, match="larger than what may be cached"):
        read(path)
