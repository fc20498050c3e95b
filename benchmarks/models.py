"""Writes GGUF models of well-known shapes with random weights, for measurements only.

Speed and memory depend on shapes and encodings, not on what the weights say. A pool of random
blocks with sane scales is made for each encoding and repeated, so a 1B model takes seconds.
Everything computed with such a model is finite; the text it writes is noise.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from benchmarks.shapes import SHAPES, ModelShape
from benchmarks.tensors import tensors_of

LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
POOL_BYTES = 4 << 20
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Recipe:
    """Tensor types of a quantisation: most matrices, the sensitive ones, the output."""

    file_type: int
    base: Type
    better: Type
    output: Type


RECIPES: dict[str, Recipe] = {
    "F32": Recipe(0, Type.F32, Type.F32, Type.F32),
    "F16": Recipe(1, Type.F16, Type.F16, Type.F16),
    "BF16": Recipe(32, Type.BF16, Type.BF16, Type.BF16),
    "Q8_0": Recipe(7, Type.Q8_0, Type.Q8_0, Type.Q8_0),
    "Q6_K": Recipe(18, Type.Q6_K, Type.Q6_K, Type.Q6_K),
    "Q5_K_M": Recipe(17, Type.Q5_K, Type.Q6_K, Type.Q6_K),
    "Q4_K_M": Recipe(15, Type.Q4_K, Type.Q6_K, Type.Q6_K),
    "Q4_0": Recipe(2, Type.Q4_0, Type.Q4_0, Type.Q6_K),
    "Q3_K_M": Recipe(12, Type.Q3_K, Type.Q5_K, Type.Q6_K),
}
# What llama.cpp's quantiser takes where a row is no multiple of 256.
FALLBACKS = {
    Type.Q3_K: Type.Q4_0, Type.Q4_K: Type.Q5_0, Type.Q5_K: Type.Q5_1, Type.Q6_K: Type.Q8_0,
}  # fmt: skip
# Where a block has its F16 scale and its F16 minimum.
SCALES: dict[Type, tuple[int, int | None]] = {
    Type.Q8_0: (0, None),
    Type.Q4_0: (0, None),
    Type.Q5_0: (0, None),
    Type.Q5_1: (0, 2),
    Type.Q3_K: (108, None),
    Type.Q4_K: (0, 2),
    Type.Q5_K: (0, 2),
    Type.Q6_K: (208, None),
}


def write_model(
    path: Path, shape: ModelShape, quant: str = "Q4_K_M", *, hollow: bool = False, seed: int = 0,
    encodings: Mapping[str, Type] | None = None,
) -> Path:  # fmt: skip
    """Write a model of `shape` in `quant`; returns `path`.

    hollow: weights are holes in the file, which read as zeros. Enough to measure memory, and
    takes no room on the disk.
    encodings: of tensors that have others than the quantisation says.
    """
    recipe = RECIPES[quant]
    writer = gguf.GGUFWriter(path, shape.architecture)
    _add_keys(writer, path.stem, shape, recipe)
    tensors = [
        (name, size, (encodings or {}).get(name) or _type_of(name, size, shape, recipe))
        for name, size in tensors_of(shape)
    ]
    for name, size, kind in tensors:
        writer.add_tensor_info(name, size, np.dtype(np.float32), _nbytes(size, kind), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    pools = Pools(seed)
    with path.open("r+b") as file:
        place = _padded(file.seek(0, 2))
        for _, size, kind in tensors:
            if not hollow:
                file.seek(place)
                file.writelines(pools.weights(size, kind))
            place = _padded(place + _nbytes(size, kind))
        file.truncate(place)
    return path


def _type_of(name: str, size: tuple[int, ...], shape: ModelShape, recipe: Recipe) -> Type:
    """As llama.cpp's quantiser chooses it, for the mixes of `RECIPES`."""
    if len(size) == 1 or "ffn_gate_inp" in name or "shortconv.conv" in name:
        return Type.F32
    kind = recipe.base
    if name == "output.weight" or (name == "token_embd.weight" and shape.tied):
        kind = recipe.output
    elif "attn_v" in name or "ffn_down" in name:
        layer, eighth = int(name.split(".")[1]), shape.layers // 8
        if layer < eighth or layer >= 7 * shape.layers // 8 or (layer - eighth) % 3 == 2:
            kind = recipe.better
    block = gguf.GGML_QUANT_SIZES[kind][0]
    return FALLBACKS[kind] if size[-1] % block and kind in FALLBACKS else kind


def _nbytes(size: tuple[int, ...], kind: Type) -> int:
    block, nbytes = gguf.GGML_QUANT_SIZES[kind]
    return math.prod(size) // block * nbytes


def _padded(offset: int) -> int:
    return -(-offset // 32) * 32


class Pools:
    """Random blocks of each encoding, made once and repeated from changing places."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._pools: dict[tuple[Type, int], np.ndarray] = {}

    def weights(self, size: tuple[int, ...], kind: Type) -> Iterator[bytes]:
        """The bytes of a tensor with standard deviation 1/sqrt(row length); norms are ones."""
        if len(size) == 1:
            yield np.ones(size, np.float32).tobytes()
            return
        pool = self._pools.get((kind, size[-1]))
        if pool is None:
            pool = self._pools[kind, size[-1]] = self._pool(kind, 1 / np.sqrt(size[-1]))
        left = _nbytes(size, kind)
        start = int(self._rng.integers(len(pool)))
        while left:
            part = pool[start:].reshape(-1)[:left]
            yield part.tobytes()
            left -= part.size
            start = 0

    def _pool(self, kind: Type, deviation: float) -> np.ndarray:
        """Blocks of `kind`, uint8 [blocks, bytes of a block]."""
        nbytes = gguf.GGML_QUANT_SIZES[kind][1]
        count = POOL_BYTES // nbytes
        if kind in (Type.F32, Type.F16, Type.BF16):
            values = self._rng.standard_normal(count, np.float32) * np.float32(deviation)
            packed = gguf.quants.quantize(values.reshape(1, -1), kind)
            return packed.view(np.uint8).reshape(count, nbytes)
        blocks = self._rng.integers(0, 256, (count, nbytes), np.uint8)
        scale_at, minimum_at = SCALES[kind]
        sample = blocks[:64].copy()
        _set_half(sample, scale_at, 1.0)
        minimum = 0.0
        if minimum_at is not None:
            _set_half(sample, minimum_at, 0.0)
            mean = gguf.quants.dequantize(sample, kind).mean()
            _set_half(sample, minimum_at, 1.0)
            minimum = mean / (mean - gguf.quants.dequantize(sample, kind).mean())
            _set_half(sample, minimum_at, minimum)
        scale = deviation / gguf.quants.dequantize(sample, kind).std()
        _set_half(blocks, scale_at, scale)
        if minimum_at is not None:
            _set_half(blocks, minimum_at, scale * minimum)
        return blocks


def _set_half(blocks: np.ndarray, at: int, value: float) -> None:
    blocks[:, at : at + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)


def _add_keys(writer: gguf.GGUFWriter, name: str, shape: ModelShape, recipe: Recipe) -> None:
    writer.add_name(name)
    writer.add_file_type(recipe.file_type)
    writer.add_quantization_version(2)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.embedding)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    if shape.convolutions:
        layers = range(shape.layers)
        writer.add_head_count_kv([0 if i in shape.convolutions else shape.kv_heads for i in layers])
        writer.add_shortconv_l_cache(shape.kernel)
    else:
        writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocab)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_used)
        writer.add_expert_feed_forward_length(shape.expert_feed_forward)
    if shape.window:
        writer.add_sliding_window(shape.window)
    writer.add_chat_template(CHATML)
    _add_vocabulary(writer, shape.vocab)


def _add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    """A SentencePiece vocabulary: three specials, 256 bytes, then pieces of letters."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    lengths = (itertools.product(LETTERS, repeat=length) for length in itertools.count(1))
    pieces = ("".join(letters) for letters in itertools.chain.from_iterable(lengths))
    for piece in pieces:
        tokens += [piece, "▁" + piece]
        if len(tokens) >= size:
            break
    del tokens[size:]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (size - 259)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [-float(i) for i in range(size - 259)])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)


def main() -> None:
    """Write one model: `python -m benchmarks.models llama-1b Q4_K_M out.gguf`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("quant", choices=RECIPES)
    parser.add_argument("path", type=Path)
    parser.add_argument("--layers", type=int, help="fewer or more layers than the shape has")
    parser.add_argument("--hollow", action="store_true", help="zeros that take no disk")
    given = parser.parse_args()
    shape = SHAPES[given.shape]
    if given.layers:
        shape = replace(shape, layers=given.layers)
    write_model(given.path, shape, given.quant, hollow=given.hollow)
    print(f"{given.path}: {given.path.stat().st_size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
