"""What an adapter's file says, and whether it fits a model: before native code sees either.

llama.cpp ends the process on keys of another type, and where its graph multiplies matrices of
other shapes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from worker.errors import ModelFileError
from worker.gguf.fields import Fields
from worker.gguf.header import RECONVERT, Header, ModelFile, TensorInfo, refuse
from worker.gguf.quant import ENCODINGS, NEVER_WEIGHTS
from worker.gguf.reader import read_header
from worker.gguf.splits import open_header
from worker.model.checks.model import check_architecture

# Of a rank. More overflows, and cells that hold NaN spoil those who share them.
_MOST_ALPHA = 100
_PART = re.compile(r"(.+)\.lora_([ab])")
_ALPHA, _INVOCATION = "adapter.lora.alpha", "adapter.alora.invocation_tokens"
# Rows of it are looked up: its A and B are the other way round.
_LOOKED_UP = "token_embd.weight"
_OTHER = "Convert the adapter for this model, or choose the model that it was made for."


class AdapterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRA adapter: for each matrix W of a model that it changes, a product B A of rank r.

    W x becomes W x + scale * alpha / r * B (A x); where alpha is 0, alpha / r is 1.

    base      name of the model that it was made for, where the file says so
    rank      the largest one
    matrices  how many it changes
    invocation  token ids where it begins to count (aLoRA); empty: it counts for the whole text
    """

    name: str
    architecture: str
    base: str | None
    rank: int
    alpha: float
    matrices: int
    n_params: int
    size_bytes: int
    invocation: tuple[int, ...] = ()
    files: tuple[ModelFile, ...]

    @property
    def summary(self) -> str:
        """What it is, in half a sentence."""
        base = f" ({self.base})" if self.base else ""
        kind = "an activated LoRA" if self.invocation else "a LoRA"
        return (
            f"{kind} adapter for {self.architecture} models{base}: rank {self.rank}, "
            f"alpha {self.alpha:g}, {self.matrices} matrices"
        )


def load_adapter(
    path: str | os.PathLike[str], base: str | os.PathLike[str] | None = None
) -> AdapterConfig:
    """What the adapter at `path` is.

    base: file of the model that it shall change
    Raises ModelFileError where it is no adapter, or does not fit the model.
    """
    header = read_header(path)
    name = Path(path).name
    keys = header.keys
    if keys.get("general.type") != "adapter" and "adapter.type" not in keys:
        raise _refusal("NOT_ADAPTER", f"{name} is not an adapter.", hint="Pass a LoRA adapter.")
    fields = Fields(header, check_architecture(header))
    for key, wanted in (("general.type", "adapter"), ("adapter.type", "lora")):
        if fields.text(key) != wanted:
            fields.bad(key, fields.text(key), repr(wanted))
    invocation = _invocation(fields)
    if _ALPHA in fields and not isinstance(fields.get(_ALPHA), float):
        fields.wrong_type(_ALPHA, "a FLOAT32")
    pairs = _pairs(name, header.tensors)
    rank = max(_rank(target, a) for target, (a, _) in pairs.items())
    alpha = fields.number(_ALPHA) or 0.0
    if not abs(alpha) <= _MOST_ALPHA * rank:  # NaN is none either
        fields.bad(_ALPHA, alpha, f"at most {_MOST_ALPHA} times the rank, which is {rank}")
    if base is not None:
        header_of_base = open_header(base)
        _check_fits(name, fields.architecture, pairs, header_of_base)
        _check_tokens(name, invocation, header_of_base)
    return AdapterConfig(
        name=fields.word("general.name") or Path(path).stem,
        architecture=fields.architecture,
        base=fields.word("general.base_model.0.name") or None,
        rank=rank,
        alpha=alpha,
        matrices=len(pairs),
        n_params=sum(tensor.elements for tensor in header.tensors),
        size_bytes=sum(tensor.nbytes for tensor in header.tensors),
        invocation=invocation,
        files=header.files,
    )


def _invocation(fields: Fields) -> tuple[int, ...]:
    if _INVOCATION not in fields:
        return ()
    value = fields.get(_INVOCATION)
    if not isinstance(value, np.ndarray) or value.dtype != np.uint32:
        fields.wrong_type(_INVOCATION, "an array of UINT32")
    return fields.numbers(_INVOCATION)


def _check_tokens(name: str, invocation: tuple[int, ...], base: Header) -> None:
    size = len(Fields(base, "").strings("tokenizer.ggml.tokens") or ())
    unknown = [token for token in invocation if token >= size]
    if unknown:
        raise _refusal(
            "ADAPTER_MISMATCH",
            f"{name} is invoked by the token {unknown[0]}, and the model has {size}.",
            field=_INVOCATION,
            got=unknown[0],
            limit=size - 1,
            hint=_OTHER,
        )


def _pairs(name: str, tensors: Iterable[TensorInfo]) -> dict[str, tuple[TensorInfo, TensorInfo]]:
    """The matrices that are changed, each with its A and B. Raises ModelFileError."""
    found: dict[str, dict[str, TensorInfo]] = {}
    for tensor in tensors:
        match = _PART.fullmatch(tensor.name)
        if match is None:
            raise _refusal(
                "ADAPTER_KIND",
                f"{name} replaces {tensor.name}, and only products of two matrices are served.",
                field=tensor.name,
            )
        if ENCODINGS[tensor.type].name in NEVER_WEIGHTS:
            raise _refusal(
                "TENSOR_TYPE",
                f"{tensor.name} is stored as {ENCODINGS[tensor.type].name}.",
                field=tensor.name,
            )
        found.setdefault(match[1], {})[match[2]] = tensor
    if not found:
        raise _refusal("NO_TENSORS", f"{name} changes nothing: it holds no tensors.")
    for target, parts in found.items():
        missing = {"a", "b"} - parts.keys()
        if missing:
            absent = f"{target}.lora_{missing.pop()}"
            raise _refusal("MISSING_TENSOR", f"The tensor {absent} is missing.", field=absent)
        a, b = _shape(parts["a"]), _shape(parts["b"])
        if _rank(target, parts["a"]) != b[0] or a[2:] != b[2:]:
            raise _refusal(
                "TENSOR_SHAPE",
                f"{target} is changed by a product of {list(a)} and {list(b)}, which do not fit.",
                field=target,
            )
    return {target: (parts["a"], parts["b"]) for target, parts in found.items()}


def _check_fits(
    name: str, architecture: str, pairs: dict[str, tuple[TensorInfo, TensorInfo]], base: Header
) -> None:
    """Raise ModelFileError unless all that is changed is there, in its shape."""
    model = base.keys.get("general.architecture")
    if architecture != model:
        raise _refusal(
            "ADAPTER_MISMATCH",
            f"{name} is for {architecture} models, and this is a {model}.",
            field="general.architecture",
            got=architecture,
            limit=model,
            hint=_OTHER,
        )
    tensors = {tensor.name: tensor for tensor in base.tensors}
    for target, (a, b) in pairs.items():
        tensor = tensors.get(target)
        if tensor is None:
            raise _refusal(
                "ADAPTER_MISMATCH",
                f"{name} changes {target}, which the model does not have.",
                field=target,
                hint=_OTHER,
            )
        rows, columns = _shape(a), _shape(b)
        if target.endswith(_LOOKED_UP):
            changed = (columns[1], rows[1])
        else:
            changed = (rows[0], columns[1], *rows[2:])
        if changed != _shape(tensor):
            raise _refusal(
                "ADAPTER_MISMATCH",
                f"{name} changes {target} as if it had the shape {list(changed)}, and it has "
                f"{list(_shape(tensor))}.",
                field=target,
                got=list(changed),
                limit=list(_shape(tensor)),
                hint=_OTHER,
            )
        if ENCODINGS[tensor.type].name == "NVFP4":
            raise _refusal(
                "ADAPTER_MISMATCH",
                f"{target} is stored as NVFP4, which no adapter can change.",
                field=target,
                got="NVFP4",
                hint="Take another quant level of the model.",
            )


def _rank(target: str, a: TensorInfo) -> int:
    return a.shape[0] if target.endswith(_LOOKED_UP) else _shape(a)[1]


def _shape(tensor: TensorInfo) -> tuple[int, ...]:
    """Two lengths, and those behind them that say something."""
    shape = [*tensor.shape, 1][: max(2, len(tensor.shape))]
    while len(shape) > 2 and shape[-1] == 1:
        shape.pop()
    return tuple(shape)


def _refusal(code: str, message: str, *, field: str | None = None, got: object = None,
             limit: object = None, hint: str = RECONVERT) -> ModelFileError:  # fmt: skip
    return refuse(code, message, field=field, got=got, limit=limit, hint=hint)
