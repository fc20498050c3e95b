"""Writes tiny random models that see or hear, and a projector for each, as small GGUF files.

    llava    16 vectors of a picture, causal, one position each
    gemma3   4 vectors of a picture that look at each other, in a model with a sliding window
    qwen2vl  M-RoPE: vectors of a picture share positions
    lfm2     as llava, in a model whose state cannot be cut
    hearing  a vector for each 640 samples of a sound

The projectors' weights are random, so what a picture does to an answer is noise that depends on
every pixel.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.support.models import architectures
from tests.support.models.architectures import WIDTH, Model
from tests.support.models.ggufs import (
    BOOL,
    F32,
    I32,
    Gguf,
    Key,
    Tensor,
    array,
    f32,
    llama_gguf,
    text,
    u32,
)

_PATCH = 7


def png(width: int = 28, height: int = 28, seed: int = 0) -> bytes:
    """A picture of coloured noise, RGB with 8 bits each."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width * 3), np.uint8)
    return _png(width, height, b"".join(b"\0" + row.tobytes() for row in pixels))


def blank_png(width: int, height: int) -> bytes:
    """A black picture, small as a file however large it is."""
    return _png(width, height, bytes((3 * width + 1) * height))


def _png(width: int, height: int, rows: bytes) -> bytes:

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + (chunk(b"IEND", b""))
    )


def wav(count: int = 6_400, seed: int = 0) -> bytes:
    """A sound of `count` samples of noise, 16 bits each, 16,000 of them a second."""
    noise = np.random.default_rng(seed).integers(-8_000, 8_000, count, np.int16)
    body = noise.astype("<i2").tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 16_000, 32_000, 2, 16)
    data = form + struct.pack("<4sI", b"data", len(body)) + body
    return struct.pack("<4sI4s", b"RIFF", 4 + len(data), b"WAVE") + data


def hearing_gguf() -> Gguf:
    """A projector of one matrix: a vector for each 640 samples."""
    weights = np.random.default_rng(640).standard_normal(640 * WIDTH) / np.sqrt(640)
    return Gguf(
        keys={
            "general.architecture": text("clip"),
            "general.type": text("mmproj"),
            "general.name": text("tiny gemma4ua"),
            "general.file_type": u32(0),
            "clip.audio.projector_type": text("gemma4ua"),
            "clip.has_audio_encoder": Key(BOOL, 1),
            "clip.audio.embedding_length": u32(640),
            "clip.audio.feed_forward_length": u32(0),
            "clip.audio.block_count": u32(0),
            "clip.audio.projection_dim": u32(WIDTH),
            "clip.audio.attention.head_count": u32(0),
            "clip.audio.attention.layer_norm_epsilon": f32(1e-6),
            "clip.audio.num_mel_bins": u32(640),
        },
        tensors=[
            Tensor("mm.a.input_projection.weight", (640, WIDTH), 0, weights.astype("<f4").tobytes())
        ],
    )


def projector_gguf(
    kind: str = "mlp",
    *,
    side: int = 4 * _PATCH,
    patch: int = _PATCH,
    seen: int = 32,
    heads: int = 2,
    inner: int = 48,
    layers: int = 2,
    width: int = WIDTH,
) -> Gguf:
    """A projector of llama.cpp's type `kind` onto vectors of `width` numbers.

    side, patch                 of a picture, and of what a vector of it stands for, in pixels
    seen, heads, inner, layers  of its encoder
    """
    rng = np.random.default_rng(list(kind.encode()))
    gguf = Gguf(
        keys={
            "general.architecture": text("clip"),
            "general.type": text("mmproj"),
            "general.name": text(f"tiny {kind}"),
            "general.file_type": u32(0),
            "clip.projector_type": text(kind),
            "clip.has_vision_encoder": Key(BOOL, 1),
            "clip.use_gelu": Key(BOOL, 1),
            "clip.vision.embedding_length": u32(seen),
            "clip.vision.feed_forward_length": u32(inner),
            "clip.vision.block_count": u32(layers),
            "clip.vision.projection_dim": u32(width),
            "clip.vision.attention.head_count": u32(heads),
            "clip.vision.attention.layer_norm_epsilon": f32(1e-5),
            "clip.vision.image_size": u32(side),
            "clip.vision.patch_size": u32(patch),
            "clip.vision.image_mean": array(F32, [0.5, 0.5, 0.5]),
            "clip.vision.image_std": array(F32, [0.5, 0.5, 0.5]),
        }
    )

    def tensor(name: str, *shape: int, norm: bool = False) -> None:
        count = int(np.prod(shape))
        spread = 0.1 if norm or len(shape) == 1 else 1 / np.sqrt(np.prod(shape[:-1]))
        values = (1.0 if norm else 0.0) + spread * rng.standard_normal(count)
        gguf.tensors.append(Tensor(name, shape, 0, values.astype("<f4").tobytes()))

    def both(name: str, *shape: int, norm: bool = False) -> None:
        tensor(f"{name}.weight", *shape, norm=norm)
        tensor(f"{name}.bias", shape[-1])

    tensor("v.patch_embd.weight", patch, patch, 3, seen)
    if kind == "qwen2vl_merger":
        tensor("v.patch_embd.weight.1", patch, patch, 3, seen)
    else:
        tensor("v.patch_embd.bias", seen)
        tensor("v.position_embd.weight", seen, (side // patch) ** 2)
    for layer in range(layers):
        block = f"v.blk.{layer}"
        both(f"{block}.ln1", seen, norm=True)
        both(f"{block}.ln2", seen, norm=True)
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            both(f"{block}.{part}", seen, seen)
        both(f"{block}.ffn_up", seen, inner)
        both(f"{block}.ffn_down", inner, seen)
    if kind != "mlp":
        both("v.post_ln", seen, norm=True)
    if kind == "gemma3":
        gguf.keys["clip.vision.projector.scale_factor"] = u32(2)
        tensor("mm.input_projection.weight", width, seen)
        tensor("mm.soft_emb_norm.weight", seen, norm=True)
    elif kind == "qwen2vl_merger":
        both("mm.0", 4 * seen, inner)
        both("mm.2", inner, width)
    else:
        both("mm.0", seen, inner)
        both("mm.2", inner, width)
    return gguf


def write_llava(folder: Path) -> tuple[Path, Path]:
    """A Llama and its projector."""
    model = llama_gguf(context=2048).write(folder / "llava.gguf")
    return model, projector_gguf("mlp").write(folder / "mmproj-llava.gguf")


def write_hearing(folder: Path) -> tuple[Path, Path]:
    """A Llama and a projector that hears."""
    model = llama_gguf(context=2048).write(folder / "hearing.gguf")
    return model, hearing_gguf().write(folder / "mmproj-hearing.gguf")


def write_gemma3(folder: Path) -> tuple[Path, Path]:
    """A Gemma 3 and its projector."""
    model = architectures.write_gemma3(folder / "gemma3.gguf")
    return model, projector_gguf("gemma3").write(folder / "mmproj-gemma3.gguf")


def write_lfm2(folder: Path) -> tuple[Path, Path]:
    """An LFM2, whose state cannot be cut, and LLaVA's projector."""
    model = architectures.write_lfm2(folder / "lfm2.gguf")
    return model, projector_gguf("mlp").write(folder / "mmproj-lfm2.gguf")


def write_qwen2vl(folder: Path) -> tuple[Path, Path]:
    """A Qwen2-VL and its projector."""
    model = Model("qwen2vl", layers=2)
    model.keys({"rope.dimension_sections": array(I32, [2, 3, 3, 0])})
    for layer in range(2):
        prefix = f"blk.{layer}."
        model.norm(f"{prefix}attn_norm.weight", WIDTH)
        model.attention(prefix, biases=True)
        model.feed_forward(prefix)
    path = model.write(folder / "qwen2vl.gguf")
    projector = projector_gguf("qwen2vl_merger", side=56)
    return path, projector.write(folder / "mmproj-qwen2vl.gguf")


SEEING: dict[str, Callable[[Path], tuple[Path, Path]]] = {
    "llava": write_llava,
    "gemma3": write_gemma3,
    "qwen2vl": write_qwen2vl,
    "lfm2": write_lfm2,
}
