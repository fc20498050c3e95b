"""Small files spoiled in one place, and how their errors have to look.

A `Change` edits a sound file, or returns bytes to write instead of it.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import ggufs
from tests.support.models.ggufs import (
    ARR,
    Gguf,
    Key,
    Raw,
    Tensor,
    u32,
)
from worker.errors import ModelFileError
from worker.model.checks import model as checks
from worker.model.checks.model import Purpose
from worker.model.config import load_config

Change = Callable[[Gguf], bytes | None]
Row = tuple[str, str, Change]
"""What is wrong with the file, the code of the error, and how to spoil it."""
TOKENS, SCORES, KINDS = ("tokenizer.ggml.tokens", "tokenizer.ggml.scores",
                         "tokenizer.ggml.token_type")  # fmt: skip
MERGES = "tokenizer.ggml.merges"
KEY0 = 24  # the place of the first key's length
LOTS = 2**64 - 1


def small(**options: Any) -> Gguf:
    """The sound file that the cases spoil."""
    sizes: dict[str, Any] = {
        "layers": 2, "embedding": 32, "heads": 2, "kv_heads": 1, "feed_forward": 32,
        "vocab_size": 300,
    }  # fmt: skip
    return ggufs.llama_gguf(**(sizes | options))


def refused(path: Path, purpose: Purpose = "generate") -> ModelFileError:
    """The error that loading `path` raises, within a second, in the agreed shape."""
    start = time.process_time()
    with pytest.raises(ModelFileError) as caught:
        load_config(path, purpose=purpose)
    error = caught.value
    assert re.search(rf"\b{error.code}\b", checks.__doc__ or ""), error.code
    assert time.process_time() - start < 1.0
    assert error.message.endswith(".")
    assert error.hint
    assert "\n" not in str(error)
    return error


def rows(*tables: list[Row]) -> list[Any]:
    """Parameters (code, change) for a test, named after what is wrong."""
    return [pytest.param(code, change, id=name) for table in tables for name, code, change in table]


def write_spoiled(folder: Path, change: Change, **options: Any) -> Path:
    """The sound file with a change, written."""
    model = small(**options)
    result = change(model)
    path = folder / "model.gguf"
    path.write_bytes(result if isinstance(result, bytes) else model.encode())
    return path


def patched(offset: int, data: bytes) -> Change:
    """The file with `data` written over the bytes at `offset`."""
    return lambda g: g.encode()[:offset] + data + g.encode()[offset + len(data) :]


def keyed(key: str, value: Key | Raw) -> Change:
    """The file with another value of `key`."""

    def change(g: Gguf) -> None:
        g.keys[key] = value

    return change


def dropped(*names: str) -> Change:
    """The file without these keys or tensors."""

    def change(g: Gguf) -> None:
        g.drop(*names)

    return change


def tensor(which: str, **fields: Any) -> Change:
    """The file with another row for the tensor `which`."""

    def change(g: Gguf) -> None:
        place = next(i for i, t in enumerate(g.tensors) if t.name == which)
        g.tensors[place] = replace(g.tensors[place], **fields)

    return change


def extra(name: str | bytes, shape: tuple[int, ...], kind: int = 0, data: bytes = b"") -> Change:
    """The file with one more tensor behind the others, without data unless given."""

    def change(g: Gguf) -> None:
        g.tensors.append(Tensor(name, shape, kind, data))

    return change


def listed(key: str, edit: Callable[[list[Any]], Any]) -> Change:
    """The file with an array edited; `edit` changes the list or returns another."""

    def change(g: Gguf) -> None:
        old = g.keys[key]
        assert isinstance(old, Key)
        values = list(old.value)
        result = edit(values)
        g.keys[key] = replace(old, value=values if result is None else result)

    return change


def raw_value(key: str, kind: int, payload: bytes) -> Change:
    """The file with `key` of type `kind` and any bytes as its value, at the end of the keys."""

    def change(g: Gguf) -> None:
        g.drop(key)
        g.keys[key] = Raw(struct.pack("<I", kind) + payload)

    return change


def raw_array(item: int, length: int, payload: bytes = b"") -> Change:
    """The file with one more key, an array that says it is `length` long."""
    return raw_value("vendor.array", ARR, struct.pack("<IQ", item, length % 2**64) + payload)


def all_of(*changes: Change) -> Change:
    """Several changes; the last one's bytes count."""

    def change(g: Gguf) -> bytes | None:
        result = None
        for each in changes:
            result = each(g)
        return result

    return change


def renamed(old: str, new: str | bytes) -> Change:
    """The file with a tensor of another name."""
    return tensor(old, name=new)


def both_sizes(g: Gguf) -> None:
    """vocab_size one above everything else."""
    g.keys["llama.vocab_size"] = u32(301)
