"""Headers, keys and tensor tables that lie are refused, each with its own code."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from tests.support.cases import for_each
from tests.support.models import ggufs
from tests.support.models.ggufs import (
    ARR,
    BOOL,
    I32,
    STR,
    U8,
    U16,
    Gguf,
    Key,
    Raw,
    array,
    f32,
    text,
    u32,
)
from tests.support.models.spoiled import (
    KEY0,
    LOTS,
    Change,
    Row,
    all_of,
    extra,
    keyed,
    patched,
    raw_array,
    raw_value,
    refused,
    renamed,
    rows,
    small,
    tensor,
    write_spoiled,
)
from worker.errors import ModelFileError
from worker.gguf import reader
from worker.model.config import load_config


def swapped_offsets(g: Gguf) -> None:
    """The second and third tensor in each other's place."""
    sizes = [ggufs.pad(len(t.data), 32) for t in g.tensors]
    g.tensors[1].offset = sizes[0] + sizes[1]
    g.tensors[2].offset = sizes[0]


def later_offsets(by: int) -> Change:
    """All tensors from the second on `by` bytes later than they are."""

    def change(g: Gguf) -> None:
        end = 0
        for place, each in enumerate(g.tensors):
            each.offset = end + (by if place else 0)
            end += ggufs.pad(len(each.data), 32)

    return change


def nested(levels: int) -> bytes:
    """Arrays in arrays."""
    return struct.pack("<IQ", ARR, 1) * levels


HEADER: list[Row] = [
    ("version 0", "UNSUPPORTED_VERSION", patched(4, struct.pack("<I", 0))),
    ("version 1", "UNSUPPORTED_VERSION", patched(4, struct.pack("<I", 1))),
    ("version 2", "UNSUPPORTED_VERSION", patched(4, struct.pack("<I", 2))),
    ("version 4", "UNSUPPORTED_VERSION", patched(4, struct.pack("<I", 4))),
    ("version 0x03000000 (big-endian)", "BIG_ENDIAN", patched(4, struct.pack(">I", 3))),
    *((f"truncated at byte {cut}", "TRUNCATED", lambda g, cut=cut: g.encode()[:cut])
      for cut in range(4, 24)),
    ("n_tensors = 2^64-1", "COUNT_TOO_LARGE", patched(8, struct.pack("<Q", LOTS))),
    ("n_kv = 2^64-1", "COUNT_TOO_LARGE", patched(16, struct.pack("<Q", LOTS))),
    ("n_tensors = 2^40", "COUNT_TOO_LARGE", patched(8, struct.pack("<Q", 2**40))),
]  # fmt: skip


KEYS: list[Row] = [
    ("key length 2^64-1", "BAD_KEY", patched(KEY0, struct.pack("<Q", LOTS))),
    ("key length = remaining + 1", "TRUNCATED",
     lambda g: Gguf(n_keys=1).head() + struct.pack("<Q", 41) + b"a" * 40),
    ("key length 0", "BAD_KEY", keyed("", u32(0))),
    ("key 65 536 bytes", "BAD_KEY", keyed("a" * 65_536, u32(0))),
    ("key non-ASCII", "BAD_KEY", keyed("käse", u32(0))),
    ("key invalid UTF-8", "BAD_UTF8", lambda g: g.keys.__setitem__(b"a\xff", u32(0))),
    ("key with a space", "BAD_KEY", keyed("a b", u32(0))),
    ("key upper-case", "KEY_STYLE", keyed("Vendor.key", u32(0))),
    ("key with an empty segment", "KEY_STYLE", keyed("a..b", u32(0))),
    ("duplicate key, same type", "DUPLICATE_KEY",
     lambda g: g.more_keys.append(("general.name", text("again")))),
    ("duplicate key, other type", "DUPLICATE_KEY",
     lambda g: g.more_keys.append(("general.name", u32(1)))),
    *((f"value type {kind:#x}", "BAD_VALUE_TYPE", raw_value("vendor.x", kind, bytes(16)))
      for kind in (13, 0xFFFFFFFF)),
    ("string length 2^64-1", "STRING_TOO_LONG",
     raw_value("vendor.x", STR, struct.pack("<Q", LOTS))),
    ("string length = remaining + 1", "TRUNCATED",
     lambda g: Gguf({"vendor.x": Raw(struct.pack("<IQ", STR, 9) + bytes(8))}).head()),
    ("string 1 GiB + 1 declared", "STRING_TOO_LONG",
     raw_value("vendor.x", STR, struct.pack("<Q", 2**30 + 1))),
    ("string 17 MiB real", "STRING_TOO_LONG", keyed("vendor.x", text(b"a" * (17 << 20)))),
    *((f"invalid UTF-8 in {key}", "BAD_UTF8", keyed(key, text(b"a\xc3(")))
      for key in ("general.name", "tokenizer.chat_template", "general.architecture")),
    ("NUL inside general.architecture", "UNKNOWN_ARCHITECTURE",
     keyed("general.architecture", text("llama\0x"))),
    ("bool byte 2", "BAD_BOOL", keyed("vendor.x", Key(BOOL, 2))),
    ("bool byte 0xFF", "BAD_BOOL", keyed("vendor.x", Key(BOOL, 255))),
    ("bool byte 2 in an array", "BAD_BOOL", keyed("vendor.x", array(BOOL, [0, 1, 2]))),
    ("array of arrays", "BAD_VALUE_TYPE", raw_array(ARR, 1, nested(1) + bytes(12))),
    ("100 000 nested arrays", "BAD_VALUE_TYPE", raw_array(ARR, 1, nested(100_000))),
    ("array length 2^64-1", "ARRAY_TOO_LONG", raw_array(U8, LOTS)),
    ("length × elem size = 2^64", "ARRAY_TOO_LONG", raw_array(ggufs.U64, 2**61)),
    ("array length = remaining/size + 1", "TRUNCATED",
     lambda g: Gguf({"a.b": Raw(struct.pack("<IIQ", ARR, U16, 5) + bytes(8))}).head()),
    ("strings length 2^64-1", "ARRAY_TOO_LONG", raw_array(STR, LOTS)),
    ("last string cut off", "TRUNCATED",
     lambda g: Gguf({"a.b": Raw(struct.pack("<IIQQ", ARR, STR, 1, 5) + b"abcd")}).head()),
    ("a string in an array above the limit", "STRING_TOO_LONG",
     lambda g: Gguf({"a.b": Raw(struct.pack("<IIQQ", ARR, STR, 1, LOTS) + b"abcd")}).head()),
    *((f"{value} in a float key that is used", "BAD_VALUE",
       keyed("llama.rope.freq_base", f32(value))) for value in (float("nan"), float("inf"))),
    ("-inf in a sampling default", "BAD_VALUE",
     keyed("general.sampling.temp", f32(float("-inf")))),
    ("alignment 13", "BAD_ALIGNMENT", keyed("general.alignment", u32(13))),
    ("alignment 0", "BAD_ALIGNMENT", keyed("general.alignment", u32(0))),
    *((f"alignment as {name}", "BAD_ALIGNMENT", keyed("general.alignment", value))
      for name, value in (("INT32", Key(I32, 32)), ("UINT64", Key(ggufs.U64, 32)),
                          ("string", text("32")), ("array", array(ggufs.U32, [32])))),
    ("alignment 2^31", "BAD_ALIGNMENT", keyed("general.alignment", u32(2**31))),
    *((f"alignment {n}", "BAD_ALIGNMENT", keyed("general.alignment", u32(n)))
      for n in (1, 2, 4, 8, 16)),
    ("alignment 128 KiB", "BAD_ALIGNMENT", keyed("general.alignment", u32(1 << 17))),
]  # fmt: skip


TABLE: list[Row] = [
    ("name length 2^64-1", "BAD_TENSOR_NAME",
     lambda g: g.head().replace(struct.pack("<Q", 17) + b"token_embd.weight",
                                struct.pack("<Q", LOTS) + b"token_embd.weight")),
    ("name 64 bytes", "BAD_TENSOR_NAME", renamed("token_embd.weight", "n" * 64)),
    ("empty name", "BAD_TENSOR_NAME", renamed("token_embd.weight", "")),
    ("name with NUL", "BAD_TENSOR_NAME", renamed("token_embd.weight", "token\0embd")),
    ("name with a control character", "BAD_TENSOR_NAME", renamed("token_embd.weight", "a\nb")),
    ("name with invalid UTF-8", "BAD_UTF8", renamed("token_embd.weight", b"a\xff")),
    ("duplicate name", "DUPLICATE_TENSOR", renamed("output.weight", "token_embd.weight")),
    ("n_dims 5", "BAD_SHAPE", tensor("token_embd.weight", shape=(32, 300, 1, 1, 1))),
    ("n_dims 2^32-1", "BAD_SHAPE", tensor("token_embd.weight", n_dims=2**32 - 1)),
    ("n_dims 0", "BAD_SHAPE", tensor("token_embd.weight", shape=())),
    ("dim = -1", "BAD_SHAPE", extra("x", (-1,))),
    ("dim = 2^63", "BAD_SHAPE", extra("x", (2**63,))),
    *((f"dim = 0 in position {place}", "BAD_SHAPE",
       extra("x", tuple(0 if i == place else 4 for i in range(4)))) for place in range(4)),
    *((f"product wraps to 0: {shape}", "BAD_SHAPE", extra("x", shape))
      for shape in ((2**32, 2**32), (2**21, 2**21, 2**21, 2))),
    ("product wraps negative", "BAD_SHAPE", extra("x", (2**63 - 1, 2))),
    ("byte size ≥ 2^64, element count fine", "TRUNCATED", extra("x", (2**31, 2**31))),
    ("quantised type, byte size wraps small", "TRUNCATED", extra("x", (2**60,), 8)),
    ("F32 [4,2^30-1,2^30+1]", "TRUNCATED", extra("x", (4, 2**30 - 1, 2**30 + 1))),
    ("type = GGML_TYPE_COUNT", "BAD_TENSOR_TYPE", extra("x", (4,), 43)),
    ("type -1", "BAD_TENSOR_TYPE", extra("x", (4,), -1)),
    ("type 0x80000000", "BAD_TENSOR_TYPE", extra("x", (4,), 0x80000000)),
    *((f"removed type {kind}", "BAD_TENSOR_TYPE", extra("x", (256,), kind))
      for kind in (4, 5, 31, 32, 33, 36, 37, 38)),
    *((f"{kind} where the loader expects a weight", "TENSOR_TYPE",
       tensor("blk.0.attn_q.weight", type=ggufs.TYPE_BY_NAME[kind], shape=shape,
              data=bytes(nbytes)))
      for kind, shape, nbytes in (
          ("I8", (32, 32), 1024), ("I16", (32, 32), 2048), ("I32", (32, 32), 4096),
          ("I64", (32, 32), 8192), ("F64", (32, 32), 8192), ("Q8_1", (32, 32), 1280),
          ("Q8_K", (256, 4), 292 * 4))),
    ("F16 norm with a second dimension", "TENSOR_TYPE",
     tensor("output_norm.weight", type=1, data=bytes(64), shape=(32, 1))),
    ("F16 norm", "TENSOR_TYPE", tensor("output_norm.weight", type=1, data=bytes(64))),
    ("ne[0] not a multiple of block size", "BAD_SHAPE", extra("x", (33,), 8)),
    ("offset not aligned", "BAD_TENSOR_OFFSET", later_offsets(4)),
    ("hole between tensors", "BAD_TENSOR_OFFSET", later_offsets(32)),
    ("two tensors, same offset", "BAD_TENSOR_OFFSET", tensor("output.weight", offset=0)),
    ("partial overlap", "BAD_TENSOR_OFFSET", tensor("output.weight", offset=32)),
    ("offsets descending", "BAD_TENSOR_OFFSET", swapped_offsets),
    ("offset + size wraps 2^64 back inside", "BAD_TENSOR_OFFSET",
     tensor("output.weight", offset=2**64 - 64)),
    ("two I8 tensors of 0x7FFFFFFFFFFFFFC0", "TRUNCATED",
     all_of(extra("x", (0x7FFFFFFFFFFFFFC0,), 24), extra("y", (0x7FFFFFFFFFFFFFC0,), 24))),
    ("data start beyond EOF", "TRUNCATED", lambda g: g.head()),
    ("file ends right after the table", "TRUNCATED",
     lambda g: g.head() + bytes(-len(g.head()) % 32)),
    ("half the data", "TRUNCATED",
     lambda g: g.encode()[: (len(g.head()) + len(g.encode())) // 2]),
    ("last byte missing", "TRUNCATED", lambda g: g.encode()[:-1]),
    ("trailing bytes after data", "TRAILING_BYTES",
     lambda g: g.encode() + b"PK\x05\x06" + bytes(60)),
]  # fmt: skip


@for_each(("code", "change"), rows(HEADER, KEYS, TABLE))
def test_a_header_that_lies(code: str, change: Change, tmp_path: Path) -> None:
    """The file is refused with its own code, one sentence and the next step."""
    assert refused(write_spoiled(tmp_path, change)).code == code


@pytest.mark.parametrize(
    ("cap", "most", "code"),
    [
        ("MAX_TENSORS", 5, "COUNT_TOO_LARGE"),
        ("MAX_KEYS", 5, "COUNT_TOO_LARGE"),
        ("MAX_STRINGS", 200, "ARRAY_TOO_LONG"),
        ("MAX_METADATA_BYTES", 5000, "METADATA_TOO_LARGE"),
    ],
)
def test_real_entries_above_a_cap(
    cap: str, most: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More tensors, keys, strings or bytes than the cap are refused, even if all exist."""
    monkeypatch.setattr(reader, cap, most)
    assert refused(small().write(tmp_path / "m.gguf")).code == code


def test_a_billion_empty_strings(tmp_path: Path) -> None:
    """Two hundred million empty strings that all exist are refused before one is allocated."""
    count = 200_000_000
    path = tmp_path / "m.gguf"
    head = Gguf({"a.b": Raw(struct.pack("<IIQ", ARR, STR, count))}).head()
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + 8 * count)
    assert refused(path).code == "ARRAY_TOO_LONG"


def test_truncated_at_every_byte_of_the_metadata(tmp_path: Path) -> None:
    """A file cut anywhere in its keys, its tensor table or its data is refused as cut short."""
    model = small(layers=1)
    data = model.encode()
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    cuts = [*range(len(data) - 1, len(model.head()), -997), *range(len(model.head()), 23, -1)]
    for cut in cuts:
        os.truncate(path, cut)
        with pytest.raises(ModelFileError) as caught:
            load_config(path)
        assert caught.value.code in ("TRUNCATED", "COUNT_TOO_LARGE"), cut
