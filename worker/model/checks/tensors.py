"""Names, shapes and types of tensors against the hyperparameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NoReturn

from worker.errors import ModelFileError
from worker.gguf.fields import Fields
from worker.gguf.header import RECONVERT, TensorInfo, refuse
from worker.gguf.quant import ENCODINGS, NEVER_WEIGHTS
from worker.model.architectures import ENCODERS, UNIFORM

_BLOCK = re.compile(r"blk\.(\d{1,9})\.")
# Norms, biases, scales, short convolutions: ggml adds and multiplies nothing but F32 to rows of
# F32, and llama.cpp's converter writes all of them so.
_F32 = re.compile(
    r"(_norm(_\d)?|ssm_conv1d(_[qkv])?|shortconv\.conv|time_mix_(first|lerp_\w+))\.weight$"
    r"|(?<!\.weight)$"
)
# Tables of numbers, by the ends of their names.
_COUNTED = {"gate_tid2eid.weight": "I32", "d2t": "I64", "t2d": "I64"}
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_HEAD, _HEAD_OUTPUT = "cls.weight", "cls.output.weight"
# Matrices that may have one row.
_MATRICES = frozenset({_HEAD, _HEAD_OUTPUT})
_LLAMA = frozenset({"llama"})
# llama.cpp reads a classifier in these, under these names.
_CLASSIFIERS = frozenset({"bert", "jina-bert-v2", "modern-bert", "neo-bert", "qwen3", "qwen3vl"})
_OF_CLASSIFIERS = frozenset({*_MATRICES, "cls.bias", "cls.norm.weight", "cls.output.bias"})
_LIKE_CLASSIFIERS = re.compile(r"(cls|(pre_)?classifier|pooler|score)\.")
# Their classifier is one matrix with one output.
_ONE_MATRIX = frozenset({"jina-bert-v2"})
# llama.cpp's converter takes two labels called LABEL_0 and LABEL_1 for none.
_UNNAMED = (
    "This is a classifier under another name, as the converter writes it without labels. Name them "
    "in id2label of config.json, not LABEL_0, and convert the model again."
)


def check_tensors(fields: Fields) -> None:
    """Raise ModelFileError where the tensors do not make the model that the keys describe."""
    tensors = {tensor.name: tensor for tensor in fields.header.tensors}
    layers = fields.count(".block_count") or 0
    for tensor in tensors.values():
        _check_type(tensor)
    _check_layers(fields, tensors, layers)
    if fields.architecture in UNIFORM or fields.architecture in ENCODERS:
        _check_vocabulary(fields, tensors)
    _check_classifier(fields, tensors)
    if fields.architecture in _LLAMA:
        _check_llama(fields, tensors, layers)


def _check_type(tensor: TensorInfo) -> None:
    name, kind = tensor.name, ENCODINGS[tensor.type].name
    if kind == _COUNTED.get(name.rpartition("ffn_")[2]):
        return
    if kind in NEVER_WEIGHTS:
        wanted = "a type for weights"
    elif (
        kind != "F32"
        and name not in _MATRICES
        and (len(_squeeze(tensor.shape)) == 1 or _F32.search(name))
    ):
        wanted = "F32"
    else:
        return
    raise refuse(
        "TENSOR_TYPE",
        f"{name} is stored as {kind}, it must be {wanted}.",
        field=name,
        got=kind,
        limit=wanted,
        hint=RECONVERT,
    )


def _check_layers(fields: Fields, tensors: Mapping[str, TensorInfo], layers: int) -> None:
    present: set[int] = set()
    for name in tensors:
        match = _BLOCK.match(name)
        if match:
            present.add(int(match[1]))
    above = max(present, default=-1)
    if above >= layers:
        problem, got = f"There are tensors of block {above}, but only {layers} blocks", above
    elif fields.architecture in UNIFORM and len(present) < layers:
        got = min(set(range(layers)) - present)
        problem = f"Block {got} of {layers} has no tensors"
    else:
        return
    raise refuse(
        "TENSOR_LAYER",
        f"{problem}.",
        field=f"blk.{got}",
        got=got,
        limit=layers,
        hint="A part of the model is missing; get it again.",
    )


def _check_vocabulary(fields: Fields, tensors: Mapping[str, TensorInfo]) -> None:
    """Tokens, token_embd and output have to agree on the size of the vocabulary."""
    tokens = fields.strings("tokenizer.ggml.tokens")
    width = fields.count(".embedding_length") or 0
    size = len(tokens) if tokens is not None else fields.count(".vocab_size")
    if _EMBEDDING not in tensors:
        _refuse_missing(_EMBEDDING)
    if tensors[_EMBEDDING].shape[0] != width:
        raise _wrong_shape(tensors[_EMBEDDING], (width, size or 0))
    if size is None:
        return
    for name in (_EMBEDDING, _OUTPUT):
        if name in tensors and tensors[name].shape != (width, size):
            raise _wrong_shape(tensors[name], (width, size), "VOCAB_MISMATCH")
    said = fields.count(".vocab_size")
    if said is not None and said != size:
        fields.bad(".vocab_size", said, f"the number of tokens, {size}", "VOCAB_MISMATCH")


def _check_classifier(fields: Fields, tensors: Mapping[str, TensorInfo]) -> None:
    width = fields.count(".embedding_length") or 0
    labels = fields.strings(".classifier.output_labels")
    outputs = len(labels) if labels else 1
    if fields.architecture in _ONE_MATRIX and outputs > 1:
        fields.bad(".classifier.output_labels", outputs, "one label")
    for name in filter(_LIKE_CLASSIFIERS.match, tensors):
        if name not in _OF_CLASSIFIERS or fields.architecture not in _CLASSIFIERS:
            raise refuse(
                "UNKNOWN_TENSOR",
                f"llama.cpp reads no {name} in a model of architecture {fields.architecture}.",
                field=name,
                got=name,
                limit=sorted(_OF_CLASSIFIERS),
                hint="Choose another reranker, or convert it again with a current llama.cpp.",
            )
    inner = 1 if fields.architecture in _ONE_MATRIX else width
    for name, shape in ((_HEAD, (width, inner)), (_HEAD_OUTPUT, (width, outputs))):
        tensor = tensors.get(name)
        if tensor is None or _squeeze(tensor.shape) == _squeeze(shape):
            continue
        is_alone = name == _HEAD and _HEAD_OUTPUT not in tensors
        raise _wrong_shape(tensor, shape, hint=_UNNAMED if is_alone else RECONVERT)


def _check_llama(fields: Fields, tensors: Mapping[str, TensorInfo], layers: int) -> None:
    """Raise unless all tensors are there that llama.cpp needs of a Llama, with their shapes."""
    for name, shape in _llama_shapes(fields, tensors, layers):
        tensor = tensors.get(name)
        if tensor is None:
            _refuse_missing(name)
        if tensor.shape != shape and _squeeze(tensor.shape) != _squeeze(shape):
            raise _wrong_shape(tensor, shape)


def _llama_shapes(
    fields: Fields, tensors: Mapping[str, TensorInfo], layers: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    width = fields.count(".embedding_length") or 0
    heads = (fields.per_layer(".attention.head_count", layers) or (1,))[0]
    kv_heads = (fields.per_layer(".attention.head_count_kv", layers) or (heads,))[0]
    inner = (fields.per_layer(".feed_forward_length", layers) or (0,))[0]
    experts = fields.count(".expert_count") or 0
    key = fields.count(".attention.key_length") or width // heads
    value = fields.count(".attention.value_length") or width // heads
    query_rows, key_rows, value_rows = key * heads, key * kv_heads, value * kv_heads
    yield "output_norm.weight", (width,)
    if "rope_freqs.weight" in tensors:
        yield "rope_freqs.weight", (key // 2,)
    for layer in range(layers):
        prefix = f"blk.{layer}."
        yield prefix + "attn_norm.weight", (width,)
        yield prefix + "attn_output.weight", (query_rows, width)
        yield prefix + "ffn_norm.weight", (width,)
        if prefix + "attn_qkv.weight" in tensors:
            yield prefix + "attn_qkv.weight", (width, query_rows + key_rows + value_rows)
        else:
            yield prefix + "attn_q.weight", (width, query_rows)
            yield prefix + "attn_k.weight", (width, key_rows)
            yield prefix + "attn_v.weight", (width, value_rows)
        if experts:
            yield prefix + "ffn_gate_inp.weight", (width, experts)
            yield prefix + "ffn_down_exps.weight", (inner, width, experts)
            yield prefix + "ffn_up_exps.weight", (width, inner, experts)
            if prefix + "ffn_gate_exps.weight" in tensors:
                yield prefix + "ffn_gate_exps.weight", (width, inner, experts)
        else:
            yield prefix + "ffn_gate.weight", (width, inner)
            yield prefix + "ffn_down.weight", (inner, width)
            yield prefix + "ffn_up.weight", (width, inner)


def _squeeze(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without ones at its end, which mean nothing to ggml."""
    end = len(shape)
    while end > 1 and shape[end - 1] == 1:
        end -= 1
    return shape[:end]


def _refuse_missing(name: str) -> NoReturn:
    raise refuse(
        "MISSING_TENSOR",
        f"The tensor {name} is missing.",
        field=name,
        hint="A part of the model is missing; get it again.",
    )


def _wrong_shape(
    tensor: TensorInfo,
    shape: tuple[int, ...],
    code: str = "TENSOR_SHAPE",
    hint: str = RECONVERT,
) -> ModelFileError:
    return refuse(
        code,
        f"{tensor.name} has the shape {list(tensor.shape)}, it must be {list(shape)}.",
        field=tensor.name,
        got=list(tensor.shape),
        limit=list(shape),
        hint=hint,
    )
