"""Changes of tensors: names, shapes, types, places, and what is in them."""

from __future__ import annotations

import struct
from dataclasses import replace
from random import Random

from checks.fuzz.mutators.header import Structure
from tests.support.models.ggufs import TYPE_BY_NAME, Gguf, Tensor, pad
from worker.gguf.quant import ENCODINGS

_DIMS = (0, 1, 2, 3, 31, 32, 33, 64, 255, 256, 300, 2**20, 2**31 - 1, 2**32, 2**63 - 1, 2**63,
         2**64 - 1)  # fmt: skip
_OFFSETS = (0, 1, 4, 31, 32, 33, 64, 2**31, 2**63, 2**64 - 64, 2**64 - 1)
_NAMES = ("output.weight", "rope_freqs.weight", "rope_factors_long.weight",
          "rope_factors_short.weight", "blk.0.attn_qkv.weight", "blk.0.attn_q.bias",
          "blk.0.attn_k_norm.weight", "blk.0.attn_q_norm.weight", "blk.0.attn_output.bias",
          "blk.0.ffn_gate_inp.weight", "blk.0.ffn_up.bias", "blk.0.attn_sinks.weight",
          "blk.0.ffn_gate_exps.weight", "blk.0.ffn_norm.bias", "token_embd_norm.weight",
          "blk.0.attn_q.scale", "blk.1.attn_norm.weight", "blk.99.attn_norm.weight", "cls.weight",
          "blk.0.nextn.eh_proj.weight", "position_embd.weight", "x", "a" * 64, "", "a\0b",
          "token_types.weight", "output_norm.bias", "per_layer_token_embd.weight")  # fmt: skip
_FLOATS = {"F32": "<f", "F16": "<e"}


def _nbytes(kind: int, shape: tuple[int, ...]) -> int:
    encoding, count = ENCODINGS[kind], 1
    for length in shape:
        count *= length
    return count // encoding.block * encoding.nbytes


def _pick(gguf: Gguf, draw: Random) -> Tensor | None:
    return draw.choice(gguf.tensors) if gguf.tensors else None


def drop(gguf: Gguf, draw: Random) -> str:
    """A tensor is missing."""
    tensor = _pick(gguf, draw)
    if tensor is None:
        return "nothing"
    gguf.tensors.remove(tensor)
    return f"no {tensor.name!r}"


def rename(gguf: Gguf, draw: Random) -> str:
    """A tensor under another name, often one that is optional."""
    tensor = _pick(gguf, draw)
    if tensor is None:
        return "nothing"
    old, others = tensor.name, [t.name for t in gguf.tensors]
    tensor.name = draw.choice((draw.choice(_NAMES), draw.choice(others)))
    return f"{old!r} named {tensor.name!r}"


def add(gguf: Gguf, draw: Random) -> str:
    """A tensor more: an optional one with a shape that is wrong, or any."""
    source = _pick(gguf, draw)
    if source is None:
        return "nothing"
    name = draw.choice(_NAMES)
    if draw.random() < 0.5:
        gguf.tensors.append(replace(source, name=name))
        return f"{name!r} as {source.name!r}"
    shape = tuple(draw.choice((1, 2, 16, 32, 64, 300)) for _ in range(draw.choice((1, 1, 2, 3))))
    gguf.tensors.append(Tensor(name, shape, 0, struct.pack("<f", 0.5) * (_nbytes(0, shape) // 4)))
    return f"{name!r} {shape}"


def shape(gguf: Gguf, draw: Random) -> str:
    """Another shape, with the bytes that it needs or without."""
    tensor = _pick(gguf, draw)
    if tensor is None:
        return "nothing"
    dims = list(tensor.shape)
    how = draw.choice(("reverse", "grow", "shrink", "set", "more", "fewer", "merge"))
    place = draw.randrange(len(dims))
    if how == "reverse":
        dims.reverse()
    elif how == "grow":
        dims[place] *= 2
    elif how == "shrink":
        dims[place] = max(1, dims[place] // 2)
    elif how == "set":
        dims[place] = draw.choice(_DIMS)
    elif how == "more":
        dims.append(draw.choice((1, 1, 2)))
    elif how == "fewer" and len(dims) > 1:
        dims.pop()
    elif how == "merge" and len(dims) > 1:
        dims = [dims[0] * dims[1], *dims[2:]]
    tensor.shape = tuple(dims)
    nbytes = _nbytes(tensor.type, tensor.shape)
    if nbytes < 2**24 and draw.random() < 0.8:
        tensor.data = (tensor.data * (nbytes // max(1, len(tensor.data)) + 1))[:nbytes]
    return f"{tensor.name!r} {how} {tensor.shape}"


def encoding(gguf: Gguf, draw: Random) -> str:
    """Another type of weights, with the bytes that it needs or without."""
    tensor = _pick(gguf, draw)
    if tensor is None:
        return "nothing"
    if draw.random() < 0.15:
        tensor.type = draw.choice((4, 5, 31, 36, 43, 99, 2**31, 2**32 - 1))
        return f"{tensor.name!r} of type {tensor.type}"
    name = draw.choice(sorted(TYPE_BY_NAME))
    tensor.type = TYPE_BY_NAME[name]
    nbytes = _nbytes(tensor.type, tensor.shape)
    if nbytes < 2**24 and draw.random() < 0.9:
        tensor.data = bytes([0, 36] * (nbytes // 2 + 1))[:nbytes]
    return f"{tensor.name!r} as {name}"


def offset(gguf: Gguf, draw: Random) -> str:
    """A place in the data that is another's, or nowhere."""
    tensor = _pick(gguf, draw)
    if tensor is None:
        return "nothing"
    tensor.offset = draw.choice((*_OFFSETS, pad(len(tensor.data), 32)))
    return f"{tensor.name!r} at {tensor.offset}"


def dimensions(gguf: Gguf, draw: Random) -> str:
    """A number of dimensions that is not theirs."""
    tensor = _pick(gguf, draw)
    if tensor is None:
        return "nothing"
    tensor.n_dims = draw.choice((0, 1, 2, 3, 4, 5, 255, 2**31, 2**32 - 1))
    return f"{tensor.name!r} of {tensor.n_dims} dimensions"


def order(gguf: Gguf, draw: Random) -> str:
    """The tensors in another order."""
    draw.shuffle(gguf.tensors)
    return "tensors in another order"


def values(gguf: Gguf, draw: Random) -> str:
    """NaN, infinity, zeros, noise or huge numbers among the weights, or all over one."""
    tensor = _pick(gguf, draw)
    if tensor is None or not tensor.data:
        return "nothing"
    kind = draw.choice((b"\xff\xff\xff\xff", struct.pack("<f", float("inf")), bytes(4),
                        struct.pack("<f", 3.4e38), struct.pack("<f", -1e30), b"\x00\x7c\x00\x7c",
                        b"\x00\xfe\x00\x7e"))  # fmt: skip
    data = bytearray(tensor.data)
    if draw.random() < 0.4:
        data[:] = (kind * (len(data) // 4 + 1))[: len(data)]
        tensor.data = bytes(data)
        return f"{tensor.name!r} is {kind.hex()} throughout"
    places = [4 * draw.randrange(max(1, len(data) // 4)) for _ in range(draw.choice((1, 3, 50)))]
    for place in places:
        data[place : place + 4] = kind[: len(data) - place]
    tensor.data = bytes(data)
    return f"{tensor.name!r} has {len(places)} × {kind.hex()}"


def noise(gguf: Gguf, draw: Random) -> str:
    """Random bits instead of the weights."""
    tensor = _pick(gguf, draw)
    if tensor is None:
        return "nothing"
    tensor.data = draw.randbytes(len(tensor.data))
    return f"{tensor.name!r} is noise"


def everything(gguf: Gguf, draw: Random) -> str:
    """All weights are the same number."""
    word = draw.choice((b"\xff", b"\0", b"\x7f", b"\x3c"))
    for tensor in gguf.tensors:
        tensor.data = word * len(tensor.data)
    return f"all weights are bytes {word.hex()}"


TENSORS: dict[str, Structure] = {
    "drop-tensor": drop, "rename-tensor": rename, "add-tensor": add, "shape": shape,
    "encoding": encoding, "offset": offset, "dimensions": dimensions, "order": order,
    "values": values, "noise": noise, "all-weights": everything,
}  # fmt: skip
