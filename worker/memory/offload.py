"""What each device holds when some of a model's layers go to GPUs.

It follows `load_tensors` in `llama-model.cpp`: the output layer is offloaded first, then the blocks
from the last one backwards, with their cells and states. The token embeddings stay on the host.
`tests/llama/test_offload.py` compares the figures with llama.cpp's own report.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Literal

import msgspec

from worker.machine import DeviceMemory, Memory
from worker.memory.buffers import Step, token_embedding
from worker.model.config import ModelConfig
from worker.settings import Settings

HOST = "CPU"
# Copies of a step's inputs where several devices work on different batches at the same time
# (GGML_SCHED_MAX_COPIES in `ggml-backend.cpp`).
_COPIES = 4

Part = Literal[
    "weights", "kv", "recurrent", "compute", "output", "copies", "process", "draft", "adapters",
    "embedding", "projector",
]  # fmt: skip

_BESIDE: tuple[Part, ...] = ("draft", "embedding")


class Placement(msgspec.Struct, frozen=True):
    """`nbytes` of `part` on `device`."""

    device: str
    part: Part
    nbytes: int


def layers_to_try(config: ModelConfig, settings: Settings, memory: Memory) -> Iterable[int]:
    """Numbers of layers to put on the GPUs, the best first; the output layer counts as one."""
    count = config.layers + 1
    if not memory.devices:
        return [0]
    if settings.n_gpu_layers is not None:
        return [count if settings.n_gpu_layers < 0 else min(settings.n_gpu_layers, count)]
    return range(count, -1, -1)


def place(
    config: ModelConfig,
    settings: Settings,
    devices: tuple[DeviceMemory, ...],
    parts: Mapping[Part, int],
    step: Step,
    gpu_layers: int,
) -> tuple[Placement, ...]:
    """What each device holds. `parts` has the bytes of a model that is on the host alone.

    All blocks count as equally large. The sum is larger than that of `parts`, because an output
    that is the same matrix as the embeddings is stored twice, and each device has a compute buffer
    of its own.
    """
    if not gpu_layers:
        return tuple(Placement(HOST, part, size) for part, size in parts.items() if size)
    layers = _layers(config, settings, devices, gpu_layers)
    copies = _COPIES if _overlaps(config, settings, devices, gpu_layers) else 1
    _, embedding, tied = token_embedding(config)
    others = config.n_params - config.n_embedding_params
    blocks = int(others * config.bits_per_weight_without_embeddings / 8)
    output = embedding if tied else config.size_bytes - blocks - embedding
    host = dict(parts)
    host["weights"] = config.size_bytes - (0 if tied else output)
    if gpu_layers > config.layers:
        host["compute"] = copies * (step.mask + step.rows) + step.rows
    else:
        host["compute"] = step.block
    placed: list[Placement] = []
    for device, numbers in zip(devices, layers, strict=True):
        share = sum(number < config.layers for number in numbers) / max(config.layers, 1)
        there: dict[Part, int] = {
            "weights": int(blocks * share),
            "kv": int(parts["kv"] * share),
            "recurrent": int(parts["recurrent"] * share),
        }
        if "adapters" in parts:  # each matrix is where the one is that it changes
            there["adapters"] = int(parts["adapters"] * share)
        for part, size in there.items():
            host[part] -= size
        if config.layers in numbers:
            there["weights"] += output
        for part in (
            (*_BESIDE, "projector") if settings.mmproj_offload else _BESIDE
        ):  # they go to the same devices as a whole
            if numbers and part in parts:
                there[part] = int(parts[part] * len(numbers) / gpu_layers)
                host[part] -= there[part]
        there["compute"] = _compute(config, step, numbers, copies)
        placed += [Placement(device.name, part, size) for part, size in there.items() if size]
    return (*(Placement(HOST, part, size) for part, size in host.items() if size), *placed)


def _layers(
    config: ModelConfig, settings: Settings, devices: tuple[DeviceMemory, ...], gpu_layers: int
) -> list[list[int]]:
    """The numbers of each device's layers. The output layer's number follows the last block's."""
    shares: list[float] = [device.available for device in devices]
    if settings.split_mode == "none":
        shares = [float(index == settings.main_gpu) for index in range(len(devices))]
    elif any(settings.tensor_split[: len(devices)]):
        shares = [*settings.tensor_split, *[0.0] * len(devices)][: len(devices)]
    borders = list(accumulate(shares))
    if not borders[-1]:
        borders = list(range(1, len(devices) + 1))
    layers: list[list[int]] = [[] for _ in devices]
    first = config.layers + 1 - gpu_layers
    for number in range(first, config.layers + 1):
        share = (number - first) / gpu_layers
        layers[bisect_right([border / borders[-1] for border in borders], share)].append(number)
    return layers


def _overlaps(
    config: ModelConfig, settings: Settings, devices: tuple[DeviceMemory, ...], gpu_layers: int
) -> bool:
    """Whether a device begins with a batch while another one still computes the batch before
    (`pipeline_parallel` in `llama-context.cpp`)."""
    return len(devices) > 1 and settings.split_mode == "layer" and gpu_layers > config.layers


def _compute(config: ModelConfig, step: Step, layers: list[int], copies: int) -> int:
    """Bytes of the compute buffer of a device with these layers. Their input rows come from another
    device."""
    if not layers:
        return 0
    output = step.output if config.layers in layers else 0
    more = copies if copies > 1 else 0
    if layers == [config.layers]:
        return output + more * output * config.embedding // (config.vocab_size + config.embedding)
    inputs = (copies - 1) * step.mask + more * step.rows
    block = step.last if layers[0] == config.layers - 1 else step.block - step.rows
    return max(block, output) + inputs
