"""The weights in an ONNX file whose matrices were quantised to 8 bits, as numbers.

An ONNX file is a protobuf message. What is read of it are the initialisers of the graph and its
nodes, which say what a matrix without a name is for; nothing needs the package `onnx`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

_MODEL_GRAPH, _GRAPH_NODE, _GRAPH_TENSOR = 7, 1, 5
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME = 1, 2, 3
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_RAW = 1, 2, 8, 9
_TENSOR_FLOATS, _TENSOR_INTEGERS = 4, 5  # of a scalar
_TYPES = {1: np.dtype("<f4"), 2: np.dtype("u1"), 3: np.dtype("i1"), 7: np.dtype("<i8")}
_QUANTIZED = "_quantized"


class Node(msgspec.Struct, frozen=True):
    """One operation."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def weights_of(path: Path) -> dict[str, np.ndarray]:
    """Name -> float32. A matrix without a name has that of its layer; all of them are [out, in], as
    torch keeps them."""
    tensors, nodes = _read(path)
    made: dict[str, np.ndarray] = {}
    for name, values in tensors.items():
        if name.endswith(_QUANTIZED):
            own = name.removesuffix(_QUANTIZED)
            shift = values.astype(np.float32) - tensors[own + "_zero_point"].astype(np.float32)
            made[own] = shift * tensors[own + "_scale"]
        elif values.dtype == np.float32 and not name.endswith("_scale"):
            made[name] = values
    for node in nodes:
        for name in node.inputs:
            own = name.removesuffix(_QUANTIZED)
            if name != own and "MatMul" in node.name and own in made:
                made[_called(own, node)] = made.pop(own).T
    return {name.removeprefix("bert."): values for name, values in made.items()}


def _called(name: str, node: Node) -> str:
    """`encoder.layer.0.attention.self.query.weight` of the node
    `/encoder/layer.0/attention/self/query/MatMul_quant`."""
    if name.endswith(".weight"):
        return name
    return ".".join(node.name.strip("/").split("/")[:-1]) + ".weight"


def _read(path: Path) -> tuple[dict[str, np.ndarray], list[Node]]:
    (graph,) = (value for number, value in _fields(memoryview(path.read_bytes()))
                if number == _MODEL_GRAPH)  # fmt: skip
    tensors: dict[str, np.ndarray] = {}
    nodes: list[Node] = []
    for number, value in _fields(graph):
        if number == _GRAPH_TENSOR:
            name, values = _tensor(value)
            tensors[name] = values
        elif number == _GRAPH_NODE:
            nodes.append(_node(value))
    return tensors, nodes


def _tensor(message: memoryview) -> tuple[str, np.ndarray]:
    dims: list[int] = []
    kind, name = 0, ""
    numbers: np.ndarray = np.empty(0)
    for number, value in _fields(message):
        if number == _TENSOR_DIMS:
            dims.append(value)
        elif number == _TENSOR_TYPE:
            kind = value
        elif number == _TENSOR_NAME:
            name = bytes(value).decode()
        elif number == _TENSOR_RAW:
            numbers = np.frombuffer(value, _TYPES[kind])
        elif number == _TENSOR_FLOATS:
            numbers = np.frombuffer(value, "<f4")
        elif number == _TENSOR_INTEGERS:
            numbers = np.array(_packed(value), _TYPES[kind])
    return name, numbers.reshape(dims)


def _node(message: memoryview) -> Node:
    texts: dict[int, list[str]] = {_NODE_INPUT: [], _NODE_OUTPUT: [], _NODE_NAME: []}
    for number, value in _fields(message):
        if number in texts:
            texts[number].append(bytes(value).decode())
    return Node("".join(texts[_NODE_NAME]), *map(tuple, (texts[_NODE_INPUT], texts[_NODE_OUTPUT])))


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: an integer, or the bytes of a text or message."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                value, at = _varint(message, at)
            case 1 | 5 as kind:
                size = 8 if kind == 1 else 4
                value, at = int.from_bytes(message[at : at + size], "little"), at + size
            case _:
                size, at = _varint(message, at)
                value, at = message[at : at + size], at + size
        yield tag >> 3, value


def _packed(message: memoryview) -> list[int]:
    values: list[int] = []
    at = 0
    while at < len(message):
        value, at = _varint(message, at)
        values.append(value)
    return values


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
