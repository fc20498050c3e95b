"""Control vectors: what is added to the hidden state behind a model's layers, as files have it.

Native code takes their numbers only, so no file of them is opened there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from worker.gguf.header import TensorInfo, refuse
from worker.gguf.quant import ENCODINGS
from worker.gguf.reader import read_header
from worker.model.config import ModelConfig

_DIRECTION = re.compile(r"direction\.([1-9]\d{0,5})")
# llama.cpp's graphs of these add none.
_WITHOUT = frozenset({"plamo2", "hy_v4"})


class ControlVector(msgspec.Struct, frozen=True):
    """The sum of some, each with its scale.

    values       float32 [layers - 1, width]: of the layers from 1 on, where the first is 0
    first, last  layers behind which it is added
    """

    values: np.ndarray
    first: int
    last: int

    @property
    def digest(self) -> bytes:
        """Of all that it changes."""
        text = f"{self.first}-{self.last}-".encode() + self.values.tobytes()
        return hashlib.blake2b(text, digest_size=16).digest()


def load_control_vector(
    files: Iterable[tuple[str, float]], layers: tuple[int, int] | None, config: ModelConfig
) -> ControlVector:
    """The sum of those in these files, with their scales, for a model.

    layers: first and last, counted from 1; None: all
    Raises ModelFileError where a file holds none, or does not fit the model.
    """
    if config.architecture in _WITHOUT:
        raise _wrong(f"llama.cpp adds no control vectors to {config.architecture} models.")
    count = config.layers - config.nextn_layers
    values = np.zeros((count - 1, config.embedding), np.float32)
    for file, scale in files:
        header = read_header(file)
        name = Path(file).name
        if header.keys.get("general.architecture") != "controlvector" or not header.tensors:
            raise refuse(
                "NOT_CONTROL_VECTOR",
                f"{name} is not a control vector.",
                hint="Pass a control vector, a GGUF file of its own.",
            )
        for tensor in header.tensors:
            layer = _layer_of(name, tensor, *values.shape)
            try:
                found = np.fromfile(file, "<f4", tensor.elements, offset=tensor.offset)
                values[layer - 1] += np.float32(scale) * found
            except (OSError, ValueError):
                raise refuse("CHANGED", f"{name} was changed after it was checked.") from None
    if not np.isfinite(values).all():
        raise _wrong("The control vectors hold, or add up to, numbers that are not finite.")
    first, last = layers or (1, count)
    return ControlVector(values, first, last)


def _layer_of(name: str, tensor: TensorInfo, count: int, width: int) -> int:
    match = _DIRECTION.fullmatch(tensor.name)
    if match is None or ENCODINGS[tensor.type].name != "F32":
        raise _wrong(
            f"{name} holds {tensor.name}, stored as {ENCODINGS[tensor.type].name}, and only "
            "direction.1, direction.2, ... as F32 are served.",
            tensor.name,
        )
    layer = int(match[1])
    if layer > count or tensor.shape != (width,):
        raise _wrong(
            f"{name} has a direction of {tensor.elements} numbers for layer {layer}, and the model "
            f"takes {width} numbers for layers 1 to {count}.",
            tensor.name,
        )
    return layer


def _wrong(message: str, field: str | None = None) -> Exception:
    return refuse(
        "ADAPTER_MISMATCH", message, field=field, hint="Take one that was made for this model."
    )
