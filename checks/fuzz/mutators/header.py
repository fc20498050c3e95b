"""Changes of counts, lengths, types, names and the order of what a header holds."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from checks.fuzz.mutators.values import NUMBERS, WORDS, any_key
from tests.support.models.ggufs import ARR, BOOL, STR, U32, Gguf, Key, Raw, u32

Structure = Callable[[Gguf, Random], str]
_COUNTS = (0, 1, 2, 2**16, 2**31, 2**32, 2**40, 2**61, 2**63, 2**64 - 1)


def any_name(gguf: Gguf, draw: Random) -> str:
    """One of the file's keys."""
    return str(draw.choice(list(gguf.keys)))


def counts(gguf: Gguf, draw: Random) -> str:
    """A number of keys or tensors that is not theirs."""
    value = draw.choice((*_COUNTS, len(gguf.keys) + draw.choice((-1, 1))))
    if draw.random() < 0.5:
        gguf.n_keys = value % 2**64
        return f"{value} keys"
    gguf.n_tensors = draw.choice((value, len(gguf.tensors) - 1, len(gguf.tensors) + 1)) % 2**64
    return f"{gguf.n_tensors} tensors"


def version(gguf: Gguf, draw: Random) -> str:
    """Another version."""
    gguf.version = draw.choice((0, 1, 2, 4, 0x03000000, 2**32 - 1))
    return f"version {gguf.version}"


def alignment(gguf: Gguf, draw: Random) -> str:
    """A key that says another alignment, with or without the data following it."""
    value = draw.choice((0, 1, 2, 4, 8, 13, 16, 64, 256, 4096, 65_536, 2**17, 2**31))
    gguf.keys["general.alignment"] = u32(value)
    # Data that followed the largest one would be gigabytes of padding.
    if 0 < value <= 2**17 and draw.random() < 0.7:
        gguf.alignment = value
    return f"alignment {value}, data at {gguf.alignment}"


def duplicate_key(gguf: Gguf, draw: Random) -> str:
    """A key that is there twice."""
    name = any_name(gguf, draw)
    value = gguf.keys[name] if draw.random() < 0.5 else any_key(draw)
    gguf.more_keys.append((name, value))
    return f"{name} again"


def rename_key(gguf: Gguf, draw: Random) -> str:
    """A key under another name."""
    name = any_name(gguf, draw)
    new = draw.choice((name.upper(), name + ".", "." + name, name[:-1], "", "a" * 70_000, "ké",
                       name.replace(".", ".."), "vendor." + name))  # fmt: skip
    gguf.keys[new] = gguf.keys.pop(name)
    return f"{name} named {new[:40]!r}"


def drop_key(gguf: Gguf, draw: Random) -> str:
    """A key is missing."""
    name = any_name(gguf, draw)
    del gguf.keys[name]
    return f"no {name}"


def shuffle_keys(gguf: Gguf, draw: Random) -> str:
    """The keys in another order: the architecture may come last."""
    pairs = list(gguf.keys.items())
    draw.shuffle(pairs)
    gguf.keys = dict(pairs)
    return "keys in another order"


def lying_length(gguf: Gguf, draw: Random) -> str:
    """An array or a string whose length is not that of its bytes."""
    name = any_name(gguf, draw)
    value = gguf.keys[name]
    raw = bytearray(value.encode())
    at = 8 if isinstance(value, Key) and value.type == ARR else 4
    length = draw.choice((*_COUNTS, 3))
    raw[at : at + 8] = struct.pack("<Q", length)
    gguf.keys[name] = Raw(bytes(raw))
    return f"{name} says {length}"


def lying_type(gguf: Gguf, draw: Random) -> str:
    """A value whose type is not its own."""
    name = any_name(gguf, draw)
    raw = bytearray(gguf.keys[name].encode())
    kind = draw.choice((*range(13), 13, 255, 2**32 - 1))
    at = 4 if draw.random() < 0.3 and len(raw) >= 8 else 0
    raw[at : at + 4] = struct.pack("<I", kind)
    gguf.keys[name] = Raw(bytes(raw))
    return f"{name} says type {kind} at {at}"


def vendor_keys(gguf: Gguf, draw: Random) -> str:
    """Keys that nobody knows."""
    count = draw.choice((1, 10, 3000))
    for number in range(count):
        gguf.keys[f"vendor.k{number}"] = any_key(draw)
    return f"{count} keys of a vendor"


def bools(gguf: Gguf, draw: Random) -> str:
    """A truth value that is neither."""
    names = [name for name, key in gguf.keys.items()
             if isinstance(key, Key) and key.type == BOOL] or ["general.flag"]  # fmt: skip
    name, value = str(draw.choice(names)), draw.choice((2, 3, 128, 255))
    gguf.keys[name] = Raw(struct.pack("<IB", BOOL, value))
    return f"{name} is {value}"


def bad_text(gguf: Gguf, draw: Random) -> str:
    """A text that is no UTF-8, or that is very long."""
    name = str(draw.choice([name for name, key in gguf.keys.items()
                            if isinstance(key, Key) and key.type == STR]))  # fmt: skip
    raw = draw.choice((b"\xff", b"a\xc3(", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\0", b"\n",
                       b"x" * 10**5, "\u202e".encode()))  # fmt: skip
    gguf.keys[name] = Key(STR, raw)
    return f"{name} is {raw[:8]!r}"


def split_keys(gguf: Gguf, draw: Random) -> str:
    """Keys of a split file that say something else."""
    name = draw.choice(("split.no", "split.count", "split.tensors.count"))
    old = gguf.keys.get(name)
    kind = old.type if isinstance(old, Key) and draw.random() < 0.8 else U32
    value = draw.choice((0, 1, 2, 3, 4, 100, 65_535)) if kind == U32 else draw.choice(NUMBERS[:40])
    value %= 2**15
    gguf.keys[name] = Key(kind, value)
    return f"{name} = {value}"


def kind_of_file(gguf: Gguf, draw: Random) -> str:
    """A word that says what the file is."""
    name = draw.choice(("general.type", "general.architecture", "adapter.type", "general.name"))
    gguf.keys[name] = Key(STR, draw.choice((*WORDS, "adapter", "mmproj", "imatrix", "clip")))
    return f"{name} = {gguf.keys[name]}"


HEADER: dict[str, Structure] = {
    "counts": counts, "version": version, "alignment": alignment, "duplicate-key": duplicate_key,
    "rename-key": rename_key, "drop-key": drop_key, "shuffle-keys": shuffle_keys,
    "lying-length": lying_length, "lying-type": lying_type, "vendor-keys": vendor_keys,
    "bool": bools, "bad-text": bad_text, "split-keys": split_keys, "kind": kind_of_file,
}  # fmt: skip
