"""Files that must be refused, each with its own code."""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import ggufs
from tests.support.ggufs import (
    ARR,
    BOOL,
    F32,
    I8,
    I32,
    STR,
    U8,
    U16,
    Gguf,
    Key,
    Raw,
    Tensor,
    array,
    f32,
    text,
    u32,
)
from worker.errors import ModelFileError
from worker.gguf.policy import Policy
from worker.model.checks import model as checks
from worker.model.config import load_config

CODE = re.compile(r"\b[A-Z0-9]+(?:_[A-Z0-9]+)+\b")
QUOTED = re.compile(r'"([A-Z0-9]+(?:_[A-Z0-9]+)+)"')
Change = Callable[[Gguf], bytes | None]
TOKENS, SCORES, KINDS = ("tokenizer.ggml.tokens", "tokenizer.ggml.scores",
                         "tokenizer.ggml.token_type")  # fmt: skip
MERGES = "tokenizer.ggml.merges"
LOTS = 2**64 - 1


def small(**options: Any) -> Gguf:
    """The sound file that the cases spoil."""
    sizes: dict[str, Any] = {
        "layers": 2, "embedding": 32, "heads": 2, "kv_heads": 1, "feed_forward": 32,
        "vocab_size": 300,
    }  # fmt: skip
    return ggufs.llama_gguf(**(sizes | options))


def refused(path: Path, policy: Policy | None = None) -> ModelFileError:
    """The error that loading `path` raises, within a second, in the agreed shape."""
    start = time.process_time()
    with pytest.raises(ModelFileError) as caught:
        load_config(path, policy=policy)
    error = caught.value
    assert re.search(rf"\b{error.code}\b", checks.__doc__ or ""), error.code
    assert time.process_time() - start < 1.0
    assert error.message.endswith(".")
    assert error.hint
    assert "\n" not in str(error)
    return error


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


def both_sizes(g: Gguf) -> None:
    """vocab_size one above everything else."""
    g.keys["llama.vocab_size"] = u32(301)


def renamed(old: str, new: str | bytes) -> Change:
    """The file with a tensor of another name."""
    return tensor(old, name=new)


def moved_block(g: Gguf) -> None:
    """Block 1 under the number 2."""
    for each in g.tensors:
        each.name = str(each.name).replace("blk.1.", "blk.2.")


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


KEY0 = 24  # the first key's length
Row = tuple[str, str, Change]
HEADER: list[Row] = [
    ("0-byte file", "EMPTY_FILE", lambda g: b""),
    ("1 byte", "TRUNCATED", lambda g: b"G"),
    ("2 bytes", "TRUNCATED", lambda g: b"GG"),
    ("3 bytes", "TRUNCATED", lambda g: b"GGU"),
    ("exactly GGUF, 4 bytes", "TRUNCATED", lambda g: b"GGUF"),
    *(
        (f"old magic {magic.decode()}", "OLD_GGML", lambda g, magic=magic: magic + bytes(60))
        for magic in (b"ggml", b"ggjt", b"lmgg", b"tjgg", b"fmgg")
    ),
    ("git-lfs pointer", "GIT_LFS_POINTER",
     lambda g: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
    ("HTML error page", "HTML_PAGE", lambda g: b"\n<!DOCTYPE html><html>404</html>"),
    ("SafeTensors file", "SAFETENSORS",
     lambda g: struct.pack("<Q", 20) + b'{"__metadata__":{} }' + bytes(30)),
    ("PyTorch checkpoint", "PYTORCH", lambda g: b"PK\x03\x04" + bytes(60)),
    ("ONNX model", "ONNX", lambda g: b"\x08\x07\x12\x07pytorch" + bytes(60)),
    ("JSON file", "NOT_GGUF", lambda g: b'{"model_type": "llama"}'),
    ("any other file", "NOT_GGUF", lambda g: bytes(range(100))),
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
    ("n_tensors = 0", "VOCAB_ONLY", lambda g: setattr(g, "tensors", [])),
    ("imatrix", "IMATRIX", all_of(lambda g: g.drop("general.architecture"),
                                  keyed("general.type", text("imatrix")))),
    ("old imatrix", "IMATRIX", keyed("imatrix.chunk_count", u32(1))),
    ("LoRA adapter", "LORA_ADAPTER", keyed("general.type", text("adapter"))),
    ("LoRA adapter, old", "LORA_ADAPTER", keyed("adapter.type", text("lora"))),
    ("mmproj", "MMPROJ", keyed("general.architecture", text("clip"))),
    ("mmproj by type", "MMPROJ", keyed("general.type", text("mmproj"))),
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
    *((f"alignment {n}", "BAD_ALIGNMENT", keyed("general.alignment", u32(n))) for n in (1, 2, 4)),
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
VALUES: list[Row] = [
    ("general.architecture missing", "MISSING_KEY", dropped("general.architecture")),
    ("architecture wrong type", "WRONG_TYPE", keyed("general.architecture", u32(1))),
    ("architecture unknown", "UNKNOWN_ARCHITECTURE", keyed("general.architecture", text("lama"))),
    ("architecture not [a-z0-9_-]", "UNKNOWN_ARCHITECTURE",
     keyed("general.architecture", text("Llama 2"))),
    ("architecture 10 KB", "UNKNOWN_ARCHITECTURE",
     keyed("general.architecture", text("x" * 10_240))),
    *((f"{key} missing", "MISSING_KEY", dropped(f"llama.{key}")) for key in (
        "block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon")),
    *((f"block_count {n}", "BAD_VALUE", keyed("llama.block_count", u32(n)))
      for n in (0, 513, 100_000, 2**32 - 1)),
    *((f"block_count as {name}", "WRONG_TYPE", keyed("llama.block_count", value))
      for name, value in (("negative INT32", Key(I32, -1)), ("float", f32(2.0)),
                          ("string", text("2")), ("array", array(ggufs.U32, [2])))),
    ("embedding_length 0", "BAD_VALUE", keyed("llama.embedding_length", u32(0))),
    ("embedding_length ≠ token_embd ne[0]", "TENSOR_SHAPE",
     all_of(keyed("llama.embedding_length", u32(64)), dropped("llama.rope.dimension_count"))),
    ("head_count > embedding_length", "BAD_VALUE", keyed("llama.attention.head_count", u32(64))),
    ("embedding_length % head_count ≠ 0", "BAD_VALUE",
     keyed("llama.attention.head_count", u32(3))),
    ("head_count_kv 0 on a transformer", "BAD_VALUE",
     keyed("llama.attention.head_count_kv", u32(0))),
    ("head_count_kv > head_count", "BAD_VALUE", keyed("llama.attention.head_count_kv", u32(4))),
    ("head_count_kv not a divisor", "BAD_VALUE",
     all_of(keyed("llama.attention.head_count", u32(4)),
            keyed("llama.attention.head_count_kv", u32(3)))),
    ("head_count array of wrong length", "BAD_VALUE",
     keyed("llama.attention.head_count", array(I32, [2, 2, 2]))),
    ("head_count array containing 0", "BAD_VALUE",
     keyed("llama.attention.head_count", array(I32, [2, 0]))),
    ("head_count array of strings", "WRONG_TYPE",
     keyed("llama.attention.head_count", array(STR, ["2", "2"]))),
    ("key_length ≠ value_length on a Llama", "BAD_VALUE",
     keyed("llama.attention.value_length", u32(8))),
    *((f"rope.dimension_count {n}", "BAD_VALUE", keyed("llama.rope.dimension_count", u32(n)))
      for n in (0, 8, 15, 64)),
    *((f"rope.freq_base {n}", "BAD_VALUE", keyed("llama.rope.freq_base", f32(n)))
      for n in (0.0, -1.0)),
    *((f"rope.scaling.factor {n}", "BAD_VALUE", keyed("llama.rope.scaling.factor", f32(n)))
      for n in (0.0, -2.0, float("nan"))),
    ("rope.scaling.type foo", "BAD_VALUE", keyed("llama.rope.scaling.type", text("foo"))),
    *((f"context_length {n}", "BAD_VALUE", keyed("llama.context_length", u32(n)))
      for n in (0, 2**32 - 1)),
    ("feed_forward_length 0", "BAD_VALUE", keyed("llama.feed_forward_length", u32(0))),
    ("feed_forward_length wrong array length", "BAD_VALUE",
     keyed("llama.feed_forward_length", array(I32, [32]))),
    *((f"norm epsilon {n}", "BAD_VALUE",
       keyed("llama.attention.layer_norm_rms_epsilon", f32(n)))
      for n in (0.0, -1e-5, float("nan"))),
    ("expert_count > native max", "BAD_VALUE",
     all_of(keyed("llama.expert_count", u32(1025)), keyed("llama.expert_used_count", u32(2)))),
    ("expert_used 0", "BAD_VALUE", keyed("llama.expert_count", u32(4))),
    ("expert_used > expert_count", "BAD_VALUE",
     all_of(keyed("llama.expert_count", u32(4)), keyed("llama.expert_used_count", u32(5)))),
    ("expert_used without experts", "BAD_VALUE", keyed("llama.expert_used_count", u32(1))),
    ("expert groups that do not divide", "BAD_VALUE",
     all_of(keyed("llama.expert_count", u32(4)), keyed("llama.expert_used_count", u32(2)),
            keyed("llama.expert_group_count", u32(3)))),
    ("nextn_predict_layers = block_count", "BAD_VALUE",
     keyed("llama.nextn_predict_layers", u32(2))),
    ("vocab_size ≠ tokens", "VOCAB_MISMATCH", both_sizes),
    ("tokens ≠ token_embd ne[1]", "VOCAB_MISMATCH",
     all_of(listed(TOKENS, lambda v: v[:-1]), listed(SCORES, lambda v: v[:-1]),
            listed(KINDS, lambda v: v[:-1]), keyed("llama.vocab_size", u32(299)))),
    ("output ne[1] ≠ tokens", "VOCAB_MISMATCH",
     tensor("output.weight", shape=(32, 299), data=bytes(32 * 299 * 4))),
    *((f"required tensor missing: {name}", "MISSING_TENSOR", dropped(name)) for name in (
        "token_embd.weight", "output_norm.weight",
        *(f"blk.1.{part}.weight" for part in (
            "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate",
            "ffn_down", "ffn_up")))),
    ("layer gap: blk.0, blk.2", "TENSOR_LAYER",
     all_of(moved_block, keyed("llama.block_count", u32(3)))),
    ("blk.99 ≥ block_count", "TENSOR_LAYER",
     extra("blk.99.attn_norm.weight", (32,), data=bytes(128))),
    ("right name, wrong shape", "TENSOR_SHAPE",
     tensor("blk.0.attn_k.weight", shape=(32, 32), data=bytes(4096))),
    ("right name, transposed", "TENSOR_SHAPE", tensor("blk.0.attn_k.weight", shape=(16, 32))),
    ("quantised tensors, no general.quantization_version", "NO_QUANTIZATION_VERSION",
     all_of(dropped("general.quantization_version"),
            tensor("output.weight", type=8, data=bytes(300 * 34)))),
]  # fmt: skip
TOKENIZER: list[Row] = [
    ("tokenizer model missing", "MISSING_KEY", dropped("tokenizer.ggml.model")),
    ("tokenizer model unknown", "UNKNOWN_TOKENIZER", keyed("tokenizer.ggml.model", text("new"))),
    ("no tokenizer at all", "NO_TOKENIZER", keyed("tokenizer.ggml.model", text("no_vocab"))),
    ("tokens missing", "MISSING_KEY", dropped(TOKENS)),
    ("tokens empty", "BAD_TOKENS", keyed(TOKENS, array(STR, []))),
    ("tokens not a string array", "WRONG_TYPE", keyed(TOKENS, array(I32, [1] * 300))),
    ("scores shorter than tokens", "BAD_SCORES", listed(SCORES, lambda v: v[:-1])),
    ("scores longer than tokens", "BAD_SCORES", listed(SCORES, lambda v: v.append(0.0))),
    ("token_type shorter", "BAD_TOKEN_TYPES", listed(KINDS, lambda v: v[:-1])),
    ("token_type longer", "BAD_TOKEN_TYPES", listed(KINDS, lambda v: v.append(1))),
    ("scores declared INT8", "WRONG_TYPE", keyed(SCORES, array(I8, [0] * 300))),
    ("scores declared UINT8", "WRONG_TYPE", keyed(SCORES, array(U8, [0] * 300))),
    ("suppress_tokens UINT8", "WRONG_TYPE",
     keyed("tokenizer.ggml.suppress_tokens", array(U8, [1]))),
    *((f"suppress_tokens id {n}", "BAD_TOKENS",
       keyed("tokenizer.ggml.suppress_tokens", array(I32, [n]))) for n in (-1, 300)),
    ("duplicate token string", "DUPLICATE_TOKEN",
     listed(TOKENS, lambda v: v.__setitem__(299, v[298]))),
    ("an empty token and the name llama.cpp gives it", "DUPLICATE_TOKEN",
     listed(TOKENS, lambda v: [*v[:298], "", "[EMPTY_298]"])),
    ("token text above 64 KiB", "TOKEN_TOO_LONG",
     listed(TOKENS, lambda v: v.__setitem__(299, "x" * 65_537))),
    ("token text with NUL", "BAD_TOKENS", listed(TOKENS, lambda v: v.__setitem__(299, "a\0b"))),
    ("BOS id of a wrong type", "WRONG_TYPE", keyed("tokenizer.ggml.bos_token_id", Key(I32, 1))),
    ("add_bos of a wrong type", "WRONG_TYPE", keyed("tokenizer.ggml.add_bos_token", u32(1))),
    ("add_bos true and no BOS id (t5)", "NO_BOS",
     all_of(keyed("tokenizer.ggml.model", text("t5")), dropped("tokenizer.ggml.bos_token_id"))),
    ("add_eos true and no EOS id", "NO_BOS",
     all_of(keyed("tokenizer.ggml.model", text("rwkv")), dropped("tokenizer.ggml.eos_token_id"),
            keyed("tokenizer.ggml.add_eos_token", Key(BOOL, 1)))),
    ("precompiled_charsmap 3 bytes", "BAD_CHARSMAP",
     all_of(keyed("tokenizer.ggml.model", text("t5")),
            keyed("tokenizer.ggml.precompiled_charsmap", array(U8, [1, 2, 3])))),
    ("charsmap blob size ≥ array length", "BAD_CHARSMAP",
     all_of(keyed("tokenizer.ggml.model", text("t5")),
            keyed("tokenizer.ggml.precompiled_charsmap", array(U8, [5, 0, 0, 0, 1, 2, 3, 4])))),
    *((f"BYTE token {name}", "BAD_BYTE_TOKEN",
       listed(TOKENS, lambda v, name=name: v.__setitem__(5, name)))
      for name in ("<0x-1>", "<0xZZ>")),
    ("a byte without a token", "BAD_BYTE_TOKEN",
     all_of(listed(TOKENS, lambda v: v.__setitem__(5, "five")),
            listed(KINDS, lambda v: v.__setitem__(5, 1)))),
    ("rwkv vocab without newline", "BAD_TOKENS", keyed("tokenizer.ggml.model", text("rwkv"))),
    *((f"token_type value {n}", "BAD_TOKEN_TYPES",
       listed(KINDS, lambda v, n=n: v.__setitem__(299, n))) for n in (-1, 7, -(2**31))),
    *((f"scores {n}", "BAD_SCORES", listed(SCORES, lambda v, n=n: v.__setitem__(299, n)))
      for n in (float("nan"), float("inf"))),
    ("template above 256 KiB", "TEMPLATE_TOO_LONG",
     keyed("tokenizer.chat_template", text("x" * 262_145))),
    ("template of a wrong type", "WRONG_TYPE", keyed("tokenizer.chat_template", u32(1))),
    ("named template of a wrong type", "WRONG_TYPE",
     keyed("tokenizer.chat_template.tool_use", u32(1))),
]  # fmt: skip
BPE: list[Row] = [
    ("merges missing for gpt2", "MISSING_KEY", dropped(MERGES)),
    ("merges of a wrong type", "WRONG_TYPE", keyed(MERGES, array(I32, [1]))),
    ("merge without a space", "BAD_MERGES", listed(MERGES, lambda v: v.__setitem__(3, "ab"))),
    ("merge with only a leading space", "BAD_MERGES",
     listed(MERGES, lambda v: v.__setitem__(3, " ab"))),
    ("merge with an unknown part", "BAD_MERGES",
     listed(MERGES, lambda v: v.__setitem__(3, "e unknown"))),
    ("tokenizer.ggml.pre unknown", "UNKNOWN_PRE_TOKENIZER",
     keyed("tokenizer.ggml.pre", text("nope"))),
    ("tokenizer.ggml.pre of another tokenizer", "UNKNOWN_PRE_TOKENIZER",
     keyed("tokenizer.ggml.pre", text("whitespace"))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "change", "vocab"),
    [
        pytest.param(code, change, "spm", id=row)
        for rows in (HEADER, KEYS, TABLE, VALUES, TOKENIZER)
        for row, code, change in rows
    ]
    + [pytest.param(code, change, "bpe", id=row) for row, code, change in BPE],
)
def test_refuses(code: str, change: Change, vocab: str, tmp_path: Path) -> None:
    """The file is refused with its own code, one sentence and the next step."""
    model = small(vocab=vocab)
    result = change(model)
    path = tmp_path / "model.gguf"
    path.write_bytes(result if isinstance(result, bytes) else model.encode())
    assert refused(path).code == code


POLICIES: list[tuple[str, Policy, str, Change]] = [
    ("version 2", Policy(allow_version_2=True), "spm", patched(4, struct.pack("<I", 2))),
    ("key upper-case", Policy(allow_odd_keys=True), "spm", keyed("Vendor..key", u32(0))),
    *((f"alignment {n}", Policy(allow_small_alignment=True), "spm",
       all_of(keyed("general.alignment", u32(n)), lambda g, n=n: setattr(g, "alignment", n)))
      for n in (1, 2, 4)),
    ("trailing bytes", Policy(allow_trailing_bytes=True), "spm",
     lambda g: g.encode() + bytes(100)),
    ("no quantization_version", Policy(allow_missing_quantization_version=True), "spm",
     all_of(dropped("general.quantization_version"),
            tensor("output.weight", type=8, data=bytes(300 * 34)))),
    ("merge without a space", Policy(allow_odd_merges=True), "bpe",
     listed(MERGES, lambda v: v.__setitem__(3, "ab"))),
    ("unknown merge part", Policy(allow_unknown_merge_parts=True), "bpe",
     listed(MERGES, lambda v: v.__setitem__(3, "e unknown"))),
    ("NUL in a token", Policy(allow_nul_in_tokens=True), "spm",
     listed(TOKENS, lambda v: v.__setitem__(299, "a\0b"))),
    ("byte token missing", Policy(allow_missing_byte_tokens=True), "spm",
     all_of(listed(TOKENS, lambda v: v.__setitem__(5, "five")),
            listed(KINDS, lambda v: v.__setitem__(5, 1)))),
    ("scores longer", Policy(allow_excess_scores=True), "spm",
     listed(SCORES, lambda v: v.append(0.0))),
    ("vocab_size ≠ tokens", Policy(allow_vocab_size_mismatch=True), "spm", both_sizes),
    ("layer beyond block_count", Policy(allow_layer_gaps=True), "spm",
     extra("blk.99.attn_norm.weight", (32,), data=bytes(128))),
    ("128 KiB alignment", Policy(max_alignment=1 << 17), "spm",
     all_of(keyed("general.alignment", u32(1 << 17)), lambda g: setattr(g, "alignment", 1 << 17))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "vocab", "change"), [pytest.param(*rest, id=row) for row, *rest in POLICIES]
)
def test_a_policy_lets_it_pass(policy: Policy, vocab: str, change: Change, tmp_path: Path) -> None:
    """What is refused by policy alone is refused by default and read when it is allowed."""
    model = small(vocab=vocab)
    result = change(model)
    path = tmp_path / "model.gguf"
    path.write_bytes(result if isinstance(result, bytes) else model.encode())
    refused(path)
    assert load_config(path, policy=policy).layers == 2


def test_unknown_architecture_can_be_allowed(tmp_path: Path) -> None:
    """An architecture newer than our list is read when the policy says so."""
    path = small(architecture="llama9").write(tmp_path / "m.gguf")
    assert refused(path).code == "UNKNOWN_ARCHITECTURE"
    assert load_config(path, policy=Policy(allow_unknown_architecture=True)).layers == 2


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        (Policy(max_tensors=5), "COUNT_TOO_LARGE"),
        (Policy(max_keys=5), "COUNT_TOO_LARGE"),
        (Policy(max_strings=200), "ARRAY_TOO_LONG"),
        (Policy(max_vocab=200), "BAD_TOKENS"),
        (Policy(max_metadata_bytes=5000), "METADATA_TOO_LARGE"),
    ],
)
def test_real_entries_above_a_cap(limit: Policy, code: str, tmp_path: Path) -> None:
    """More tensors, keys, strings, tokens or bytes than the cap are refused though all are real."""
    assert refused(small().write(tmp_path / "m.gguf"), limit).code == code


def test_a_billion_empty_strings(tmp_path: Path) -> None:
    """Two hundred million empty strings, all real, are refused before one is made."""
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


@pytest.mark.parametrize("kind", ["directory", "fifo", "socket", "device"])
def test_what_is_no_file_does_not_block(kind: str, tmp_path: Path) -> None:
    """A directory, FIFO, socket or device as the model is refused at once."""
    path = tmp_path / "m.gguf"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        server = socket.socket(socket.AF_UNIX)
        server.bind(os.fspath(path))
        server.close()
    assert refused(path).code == ("DIRECTORY" if kind == "directory" else "NOT_A_FILE")


def test_links(tmp_path: Path) -> None:
    """A link to a file is followed; one to nothing or to itself is refused."""
    small().write(tmp_path / "blob")
    good, dangling, loop = (tmp_path / f"{name}.gguf" for name in ("good", "dangling", "loop"))
    good.symlink_to("blob")
    dangling.symlink_to("nowhere")
    loop.symlink_to("loop.gguf")
    assert load_config(good).layers == 2
    assert "link to nothing" in refused(dangling).message
    assert "back to itself" in refused(loop).message
    assert refused(tmp_path / "absent.gguf").code == "NOT_FOUND"
    assert refused(tmp_path / "nul\0.gguf").code == "NOT_FOUND"


def test_a_directory_says_what_to_pass(tmp_path: Path) -> None:
    """A directory names its one model, or how to make one of the SafeTensors in it."""
    (tmp_path / "config.json").write_text("{}")
    error = refused(tmp_path)
    assert error.code == "SAFETENSORS_DIR"
    assert "convert_hf_to_gguf.py" in str(error)
    ggufs.write_llama(tmp_path / "m.gguf", splits=3)
    assert "m-00001-of-00003.gguf" in str(refused(tmp_path))
    ggufs.write_llama(tmp_path / "other.gguf")
    assert "2 models" in str(refused(tmp_path))


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that this user may not open is refused with that reason."""

    def denied(*_: object, **__: object) -> int:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    assert refused(tmp_path / "m.gguf").code == "UNREADABLE"


@pytest.mark.parametrize("arch", ["bert", "t5", "eagle3"])
def test_models_that_cannot_generate(arch: str, tmp_path: Path) -> None:
    """Encoders, encoder-decoders and draft heads are refused for generating only."""
    path = small(architecture=arch).write(tmp_path / "m.gguf")
    codes = {"bert": "ENCODER_ONLY", "t5": "ENCODER_DECODER", "eagle3": "DRAFT_MODEL"}
    assert refused(path).code == codes[arch]
    assert load_config(path, purpose="inspect").architecture == arch


def test_a_vocabulary_with_an_absurd_number_of_layers(tmp_path: Path) -> None:
    """Numbers about the model are bounded where only the vocabulary is read, too."""
    model = ggufs.vocab_gguf()
    model.keys["llama.block_count"] = u32(2**32 - 1)
    with pytest.raises(ModelFileError) as caught:
        load_config(model.write(tmp_path / "v.gguf"), purpose="inspect")
    assert caught.value.code == "BAD_VALUE"


def test_codes_are_documented() -> None:
    """Each code on the list in checks.py is raised somewhere; `refused` checks the reverse."""
    folder = Path(checks.__file__).parents[2]
    listed = {word for line in (checks.__doc__ or "").splitlines() for word in CODE.findall(line)}
    used = {
        code
        for path in folder.rglob("*.py")
        for code in QUOTED.findall(path.read_text().replace(checks.__doc__ or "", ""))
    }
    assert listed
    assert listed <= used


def test_errors_say_where(tmp_path: Path) -> None:
    """An error about a key carries the byte offset of its value, the key and both values."""
    model = small()
    model.keys["llama.rope.freq_base"] = f32(-1.0)
    path = model.write(tmp_path / "m.gguf")
    error = refused(path)
    assert error.field == "llama.rope.freq_base"
    assert error.got == -1.0
    assert error.limit == "above 0"
    assert error.offset is not None
    assert path.read_bytes()[error.offset : error.offset + 4] == struct.pack("<f", -1.0)
    assert F32 == 6
