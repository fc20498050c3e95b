"""Heads in a model's own file that guess its tokens (multi-token prediction, MTP)."""

from __future__ import annotations

from worker.errors import UsageError
from worker.gguf.splits import open_header
from worker.model.config import ModelConfig

# Architectures whose heads are tested here, and the tensors of a head's block that llama.cpp's
# graph for it takes for granted. Where one is missing it ends the process.
_TENSORS: dict[str, tuple[str, ...]] = {
    "glm4moe": ("ffn_gate_inp", "ffn_gate_shexp"),
    "deepseek2": ("ffn_gate_inp", "attn_k_b"),
    "qwen35": (),
    "qwen35moe": ("ffn_gate_inp",),
}
_OF_ALL = ("nextn.eh_proj", "nextn.enorm", "nextn.hnorm")


def check_heads(config: ModelConfig) -> None:
    """Raise UsageError unless the file has a head that llama.cpp can compute."""
    why = why_no_heads(config)
    if why is not None:
        raise UsageError(
            f"There is no draft model, and {config.name or config.architecture} cannot guess its "
            f"own tokens: {why}.",
            hint="Choose another --draft, or give a --draft-model.",
        )


def why_no_heads(config: ModelConfig) -> str | None:
    """Why no heads of this file can guess, as a part of a sentence; None: they can.

    The key and the tensors decide, not the file's name: there are files with the key whose tensors
    were left out.
    """
    if not config.nextn_layers:
        return "the file has no heads for it"
    tensors = _TENSORS.get(config.architecture)
    if tensors is None:
        return f"heads of {config.architecture} models are not supported"
    if config.nextn_layers > 1:
        return f"it has {config.nextn_layers} heads, and one is supported"
    header = open_header(config.path)
    if header.keys.get(f"{config.architecture}.attention.temperature_scale"):
        return "its attention is scaled by position, and that of heads is not"
    there = {tensor.name for tensor in header.tensors}
    block = f"blk.{config.layers - config.nextn_layers}."
    for name in (*_OF_ALL, *tensors):
        if f"{block}{name}.weight" not in there:
            return f"the file has no tensor {block}{name}.weight"
    return None
