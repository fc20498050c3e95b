"""Writes small GGUF files, valid and deliberately broken ones.

A `Gguf` is an editable file: its keys and tensors can be changed, dropped or reordered, counts
and offsets can be made to lie, and `encode` lays the bytes out without judging them.
`llama_gguf` makes one of a tiny random Llama that llama.cpp loads and runs; `write_llama`
writes it, also quantised and split. Equal arguments give equal bytes.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from worker.gguf.quant import ENCODINGS, FILE_TYPES

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
_LAYOUT = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f",
           BOOL: "<B", U64: "<Q", I64: "<q", F64: "<d"}  # fmt: skip
TYPE_BY_NAME = {encoding.name: number for number, encoding in ENCODINGS.items()}
FILE_TYPE_BY_LABEL = {label: number for number, (label, _) in FILE_TYPES.items()}
QUANTIZED = tuple(
    encoding.name
    for encoding in ENCODINGS.values()
    if encoding.quantized and encoding.name not in ("Q8_1", "Q8_K")
)

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@dataclass(frozen=True)
class Key:
    """A value and its GGUF type; an array has its element type in `item`."""

    type: int
    value: Any
    item: int | None = None

    def encode(self) -> bytes:
        """Type and value as in a file."""
        if self.type != ARR:
            return struct.pack("<I", self.type) + encode_scalar(self.type, self.value)
        assert self.item is not None
        head = struct.pack("<IIQ", ARR, self.item, len(self.value))
        if self.item == STR:
            return head + b"".join(encode_scalar(STR, text) for text in self.value)
        layout = _LAYOUT[self.item]
        return head + struct.pack(f"<{len(self.value)}{layout[1:]}", *self.value)


@dataclass(frozen=True)
class Raw:
    """A value that is written as it is, type included."""

    data: bytes

    def encode(self) -> bytes:
        """The bytes."""
        return self.data


def u32(value: int) -> Key:
    """An UINT32."""
    return Key(U32, value)


def f32(value: float) -> Key:
    """A FLOAT32."""
    return Key(F32, value)


def text(value: str | bytes) -> Key:
    """A string."""
    return Key(STR, value)


def array(item: int, values: Sequence[Any]) -> Key:
    """An array."""
    return Key(ARR, values, item)


def encode_scalar(kind: int, value: Any) -> bytes:
    """A value without its type."""
    if kind == STR:
        raw = value.encode() if isinstance(value, str) else bytes(value)
        return struct.pack("<Q", len(raw)) + raw
    return struct.pack(_LAYOUT[kind], value)


class Hole(bytes):
    """So many zeros that are never made: the file has a hole there."""

    size: int

    def __len__(self) -> int:
        return self.size


@dataclass
class Tensor:
    """A tensor; `offset` None means behind the one before it. `type` may be unknown."""

    name: str | bytes
    shape: tuple[int, ...]
    type: int
    data: bytes
    offset: int | None = None
    n_dims: int | None = None


@dataclass
class Gguf:
    """An editable file; `n_keys` and `n_tensors` override the true counts."""

    keys: dict[str | bytes, Key | Raw] = field(default_factory=dict[str | bytes, "Key | Raw"])
    tensors: list[Tensor] = field(default_factory=list[Tensor])
    version: int = 3
    alignment: int = 32
    n_keys: int | None = None
    n_tensors: int | None = None
    more_keys: list[tuple[str | bytes, Key | Raw]] = field(
        default_factory=list[tuple[str | bytes, "Key | Raw"]]
    )
    tail: bytes = b""

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name."""
        return next(tensor for tensor in self.tensors if tensor.name == name)

    def drop(self, *names: str) -> None:
        """Remove keys or tensors."""
        for name in names:
            self.keys.pop(name, None)
        self.tensors = [tensor for tensor in self.tensors if tensor.name not in names]

    def head(self) -> bytes:
        """Everything in front of the padding before the weights."""
        pairs = [*self.keys.items(), *self.more_keys]
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_keys = len(pairs) if self.n_keys is None else self.n_keys
        parts = [b"GGUF", struct.pack("<IQQ", self.version, n_tensors, n_keys)]
        for key, value in pairs:
            parts += [encode_scalar(STR, key), value.encode()]
        end = 0
        for tensor in self.tensors:
            offset = end if tensor.offset is None else tensor.offset
            n_dims = len(tensor.shape) if tensor.n_dims is None else tensor.n_dims
            parts += [
                encode_scalar(STR, tensor.name),
                struct.pack("<I", n_dims),
                *(struct.pack("<Q", length % 2**64) for length in tensor.shape),
                struct.pack("<IQ", tensor.type % 2**32, offset % 2**64),
            ]
            end = pad(end + len(tensor.data), self.alignment)
        return b"".join(parts)

    def encode(self) -> bytes:
        """The file."""
        out = bytearray(self.head())
        if self.tensors:
            out += bytes(pad(len(out), self.alignment) - len(out))
        for tensor in self.tensors:
            out += tensor.data
            out += bytes(pad(len(tensor.data), self.alignment) - len(tensor.data))
        return bytes(out) + self.tail

    def write(self, path: Path) -> Path:
        """Write the file; returns `path`."""
        path.write_bytes(self.encode())
        return path


def pad(offset: int, alignment: int) -> int:
    """The next multiple of `alignment`."""
    return -(-offset // alignment) * alignment


def weights(shape: Sequence[int], kind: str, rng: np.random.Generator) -> bytes:
    """Random weights of a ggml shape in an encoding, finite in every encoding."""
    elements = int(np.prod(shape))
    scale = 1.0 / float(np.sqrt(shape[0]))
    if kind in ("F32", "F16", "BF16"):
        values = (rng.standard_normal(elements, dtype=np.float32) * scale).astype(np.float32)
        if kind == "BF16":
            return (values.view(np.uint32) >> 16).astype("<u2").tobytes()
        return values.astype("<f4" if kind == "F32" else "<f2").tobytes()
    encoding = ENCODINGS[TYPE_BY_NAME[kind]]
    if kind == "Q8_0":
        blocks = np.zeros((elements // 32, 34), np.uint8)
        blocks[:, :2] = np.frombuffer(np.float16(scale / 64).tobytes(), np.uint8)
        blocks[:, 2:] = rng.integers(-127, 128, (elements // 32, 32), np.int8).view(np.uint8)
        return blocks.tobytes()
    # Bytes below 32 make every scale field a small positive number, whatever its place.
    nbytes = elements // encoding.block * encoding.nbytes
    return rng.integers(0, 32, nbytes, np.uint8).tobytes()


def hole(shape: Sequence[int], kind: str) -> Hole:
    """As many zeros as weights of that shape have bytes."""
    encoding = ENCODINGS[TYPE_BY_NAME[kind]]
    found = Hole()
    found.size = math.prod(shape) // encoding.block * encoding.nbytes
    return found


def spm_vocabulary(size: int = 320) -> dict[str | bytes, Key | Raw]:
    """Keys of a SentencePiece vocabulary: three specials, 256 bytes, then short pieces."""
    assert size >= 300
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [2, 3, 3] + [6] * 256
    for piece in _pieces("▁"):
        if len(tokens) == size:
            break
        tokens.append(piece)
        kinds.append(1)
    assert len(tokens) == size, "ran out of pieces"
    scores = [0.0] * 259 + [-float(index) for index in range(size - 259)]
    return {
        "tokenizer.ggml.model": text("llama"),
        "tokenizer.ggml.pre": text("default"),
        "tokenizer.ggml.tokens": array(STR, tokens),
        "tokenizer.ggml.scores": array(F32, scores),
        "tokenizer.ggml.token_type": array(I32, kinds),
        "tokenizer.ggml.bos_token_id": u32(1),
        "tokenizer.ggml.eos_token_id": u32(2),
        "tokenizer.ggml.unknown_token_id": u32(0),
        "tokenizer.ggml.add_bos_token": Key(BOOL, 1),
        "tokenizer.ggml.add_eos_token": Key(BOOL, 0),
    }


def bpe_vocabulary(size: int = 320) -> dict[str | bytes, Key | Raw]:
    """Keys of a GPT-2 byte-level vocabulary: 256 bytes, merged pairs, three specials."""
    assert size >= 300
    alphabet = byte_alphabet()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens, merges = list(alphabet), list[str]()
    letters = ["Ġ", *"etaoinshrdlucmfw"]
    for pair in ((a, b) for a in letters for b in letters[1:]):
        if len(tokens) == size - len(specials):
            break
        tokens.append("".join(pair))
        merges.append(" ".join(pair))
    tokens += specials
    assert len(tokens) == size, "ran out of pairs"
    end = size - 3
    return {
        "tokenizer.ggml.model": text("gpt2"),
        "tokenizer.ggml.pre": text("gpt-2"),
        "tokenizer.ggml.tokens": array(STR, tokens),
        "tokenizer.ggml.token_type": array(I32, [1] * end + [3] * 3),
        "tokenizer.ggml.merges": array(STR, merges),
        "tokenizer.ggml.bos_token_id": u32(end),
        "tokenizer.ggml.eos_token_id": u32(size - 1),
        "tokenizer.ggml.add_bos_token": Key(BOOL, 0),
    }


def byte_alphabet() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, by byte value."""
    kept = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(spare)) for byte in range(256)]


def _pieces(space: str) -> Iterable[str]:
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    yield space
    yield from letters
    yield from (space + letter for letter in letters)
    yield from (a + b for a in letters for b in letters)
    yield from (a + b + c for a in letters for b in letters for c in letters)


def llama_gguf(
    *,
    layers: int = 2,
    embedding: int | None = None,
    heads: int = 4,
    kv_heads: int = 2,
    feed_forward: int | None = None,
    context: int = 512,
    vocab: Literal["spm", "bpe"] = "spm",
    vocab_size: int = 320,
    encoding: str = "F32",
    file_type: str | None = None,
    experts: int = 0,
    experts_used: int = 2,
    tied: bool = False,
    architecture: str = "llama",
    chat_template: str | None = CHAT_TEMPLATE,
    name: str = "tiny",
    seed: int = 0,
    hollow: bool = False,
) -> Gguf:
    """A tiny random Llama; matrices are stored in `encoding`, norms in F32.

    hollow: with holes instead of weights, for `sparse_llama`

    `embedding` and `feed_forward` default to 64 and 128, or to one block where that is longer.
    """
    block = ENCODINGS[TYPE_BY_NAME[encoding]].block
    width = max(64, block) if embedding is None else embedding
    inner = max(128, block) if feed_forward is None else feed_forward
    head_dim = width // heads
    rng = np.random.default_rng(seed)
    arch = architecture
    keys: dict[str | bytes, Key | Raw] = {
        "general.architecture": text(arch),
        "general.type": text("model"),
        "general.name": text(name),
        "general.file_type": u32(_file_type(encoding, file_type)),
        "general.quantization_version": u32(2),
        f"{arch}.block_count": u32(layers),
        f"{arch}.context_length": u32(context),
        f"{arch}.embedding_length": u32(width),
        f"{arch}.feed_forward_length": u32(inner),
        f"{arch}.attention.head_count": u32(heads),
        f"{arch}.attention.head_count_kv": u32(kv_heads),
        f"{arch}.attention.layer_norm_rms_epsilon": f32(1e-5),
        f"{arch}.rope.dimension_count": u32(head_dim),
        f"{arch}.rope.freq_base": f32(10000.0),
        f"{arch}.vocab_size": u32(vocab_size),
        **(spm_vocabulary(vocab_size) if vocab == "spm" else bpe_vocabulary(vocab_size)),
    }
    if experts:
        keys[f"{arch}.expert_count"] = u32(experts)
        keys[f"{arch}.expert_used_count"] = u32(experts_used)
    if chat_template is not None:
        keys["tokenizer.chat_template"] = text(chat_template)
    gguf = Gguf(keys=keys)

    def matrix(name: str, *shape: int) -> None:
        kind = TYPE_BY_NAME[encoding]
        data = hole(shape, encoding) if hollow else weights(shape, encoding, rng)
        gguf.tensors.append(Tensor(name, shape, kind, data))

    def norm(name: str) -> None:
        data = hole((width,), "F32") if hollow else np.ones(width, "<f4").tobytes()
        gguf.tensors.append(Tensor(name, (width,), TYPE_BY_NAME["F32"], data))

    matrix("token_embd.weight", width, vocab_size)
    norm("output_norm.weight")
    if not tied:
        matrix("output.weight", width, vocab_size)
    for layer in range(layers):
        prefix = f"blk.{layer}."
        norm(prefix + "attn_norm.weight")
        matrix(prefix + "attn_q.weight", width, head_dim * heads)
        matrix(prefix + "attn_k.weight", width, head_dim * kv_heads)
        matrix(prefix + "attn_v.weight", width, head_dim * kv_heads)
        matrix(prefix + "attn_output.weight", head_dim * heads, width)
        norm(prefix + "ffn_norm.weight")
        if experts:
            data = weights((width, experts), "F32", rng)
            gguf.tensors.append(Tensor(prefix + "ffn_gate_inp.weight", (width, experts), 0, data))
            matrix(prefix + "ffn_gate_exps.weight", width, inner, experts)
            matrix(prefix + "ffn_down_exps.weight", inner, width, experts)
            matrix(prefix + "ffn_up_exps.weight", width, inner, experts)
        else:
            matrix(prefix + "ffn_gate.weight", width, inner)
            matrix(prefix + "ffn_down.weight", inner, width)
            matrix(prefix + "ffn_up.weight", width, inner)
    return gguf


def _file_type(encoding: str, label: str | None) -> int:
    if label is not None:
        return FILE_TYPE_BY_LABEL[label]
    return next(number for number, (_, base) in FILE_TYPES.items() if base == encoding)


def write_llama(path: Path, *, splits: int = 1, **options: Any) -> Path:
    """Write `llama_gguf(**options)`; returns the file to load.

    With `splits` above 1 the files are `<stem>-00001-of-0000N.gguf` and so on beside `path`.
    """
    gguf = llama_gguf(**options)
    if splits == 1:
        return gguf.write(path)
    return write_split(path, gguf, splits)


def sparse_llama(path: Path, **options: Any) -> Path:
    """Write `llama_gguf(**options)` with holes for weights: any size, and next to no disk.

    The `width` of the model, its `layers` and so on may be those of a real one.
    """
    gguf = llama_gguf(**options, hollow=True)
    end = pad(len(gguf.head()), gguf.alignment)
    for tensor in gguf.tensors:
        end += pad(len(tensor.data), gguf.alignment)
    path.write_bytes(gguf.head())
    os.truncate(path, end)
    return path


def write_split(path: Path, gguf: Gguf, splits: int) -> Path:
    """Spread a file over `splits` files; returns the first one's path."""
    paths = [
        path.with_name(f"{path.stem}-{number + 1:05d}-of-{splits:05d}.gguf")
        for number in range(splits)
    ]
    for target, part in zip(paths, split(gguf, splits), strict=True):
        part.write(target)
    return paths[0]


def split(gguf: Gguf, splits: int) -> list[Gguf]:
    """The parts of a split file; the first has all keys, the others those of the split."""
    total, parts = len(gguf.tensors), list[Gguf]()
    for number in range(splits):
        own: dict[str | bytes, Key | Raw] = {
            "split.no": Key(U16, number),
            "split.count": Key(U16, splits),
            "split.tensors.count": Key(I32, total),
        }
        tensors = gguf.tensors[total * number // splits : total * (number + 1) // splits]
        parts.append(
            Gguf(
                keys={**gguf.keys, **own} if number == 0 else own,
                tensors=[replace(tensor) for tensor in tensors],
            )
        )
    return parts


def vocab_gguf(
    vocab: Literal["spm", "bpe"] = "spm", *, architecture: str = "llama", size: int = 320
) -> Gguf:
    """A file that holds a vocabulary and no weights."""
    gguf = llama_gguf(vocab=vocab, vocab_size=size, layers=1, architecture=architecture)
    gguf.tensors = []
    return gguf
