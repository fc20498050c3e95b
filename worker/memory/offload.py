"""What each device holds when some of a model's layers go to GPUs, and tensors elsewhere than their
layer: experts to the CPU, what --override-tensor names. Of several expressions that match the first
one counts.

It follows `load_tensors` in `llama-model.cpp`: the output layer is offloaded first, then the blocks
from the last one backwards, with their cells and states. The token embeddings stay on the host.
`tests/llama/test_offload.py` compares the figures with llama.cpp's own report.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from worker.gguf.splits import open_header
from worker.machine import DeviceMemory, Memory
from worker.memory.cells import layer_widths
from worker.memory.contexts import ContextBytes, Wanted
from worker.memory.estimate import Step, step_bytes
from worker.memory.weights import token_embedding
from worker.model.config import ModelConfig
from worker.settings import Settings

_EXPERTS = "ffn_(up|down|gate|gate_up)_(ch|)exps"
_BLOCK = re.compile(r"blk\.(\d+)\.")
HOST = "CPU"
# Beginning of names of devices that compute only with what they have.
_PLAIN = "RPC"
# Copies of a step's inputs where several devices work on different batches at the same time
# (GGML_SCHED_MAX_COPIES in `ggml-backend.cpp`).
_COPIES = 4
Part = Literal[
    "weights", "kv", "recurrent", "compute", "output", "copies", "process", "draft", "adapters",
    "embedding", "projector",
]  # fmt: skip


class Moved(msgspec.Struct, frozen=True):
    """`nbytes` of a layer, in the order of the file, that lie on another device. The output layer's
    number follows the last block's; None: of what is on the CPU anyway."""

    layer: int | None
    nbytes: int
    device: str


def placements(settings: Settings, cpu_experts: int) -> tuple[tuple[str, str], ...]:
    """Expression and device of each wish; `cpu_experts`: layers whose experts stay on the CPU."""
    if not cpu_experts:
        return settings.override_tensor
    layers = "|".join(map(str, range(cpu_experts)))
    return (*settings.override_tensor, (rf"blk\.({layers})\.{_EXPERTS}", HOST))


def device_for(name: str, wishes: tuple[tuple[str, str], ...]) -> str | None:
    """The device that a tensor shall lie on; None: that of its layer."""
    return next((device for pattern, device in wishes if re.search(pattern, name)), None)


def named_tensors(config: ModelConfig, settings: Settings) -> tuple[Moved, ...]:
    """What the settings name."""
    wishes, found = settings.override_tensor, list[Moved]()
    for tensor in open_header(Path(config.path)).tensors if wishes else ():
        if (device := device_for(tensor.name, wishes)) is not None:
            block = _BLOCK.match(tensor.name)
            output = config.layers if tensor.name.startswith("output") else None
            found.append(Moved(int(block[1]) if block else output, tensor.nbytes, device))
    return tuple(found)


def moved_tensors(
    config: ModelConfig, named: tuple[Moved, ...], cpu_experts: int
) -> tuple[Moved, ...]:
    """These, and the experts of so many layers."""
    experts = config.expert_bytes[:cpu_experts]
    return (*named, *(Moved(layer, size, HOST) for layer, size in enumerate(experts) if size))


class Placement(msgspec.Struct, frozen=True):
    """`nbytes` of `part` on `device`."""

    device: str
    part: Part
    nbytes: int


class Beside(NamedTuple):
    """What guesses, or a context for vectors, beside the model's own context.

    contexts  that it has; they take so much on the CPU alone
    model     all its layers go to the devices, with so many bytes of weights; None: it has those of
              the model, from the first of these on
    """

    part: Part
    contexts: tuple[Wanted, ...]
    taken: ContextBytes
    model: ModelConfig | None = None
    weights: int = 0
    first: int = 0


def layers_to_try(
    config: ModelConfig, settings: Settings, memory: Memory
) -> Iterable[tuple[int, int]]:
    """Numbers of layers to put on the GPUs, the output layer counts as one, and of those whose
    experts stay on the CPU; the best first.

    Of a token's experts a few are computed: what they weigh costs a CPU less than any other weight.
    """
    count = config.layers + 1
    if not memory.devices:
        return [(0, 0)]
    kept = min(settings.cpu_moe or 0, len(config.expert_bytes))
    if settings.n_gpu_layers is not None:
        return [(count if settings.n_gpu_layers < 0 else min(settings.n_gpu_layers, count), kept)]
    found: list[tuple[int, int]] = []
    if settings.cpu_moe is None and not settings.override_tensor:
        found = [(count, number) for number in range(len(config.expert_bytes))]
        kept = len(config.expert_bytes)
    return [*found, *((number, kept) for number in range(count, 0, -1)), (0, 0)]


def place(
    config: ModelConfig,
    settings: Settings,
    devices: tuple[DeviceMemory, ...],
    parts: Mapping[Part, int],
    step: Step,
    gpu_layers: int,
    moved: tuple[Moved, ...] = (),
) -> tuple[Placement, ...]:
    """What each device holds. `parts` has the bytes of a model that is on the host alone.

    The sum is larger than that of `parts`, because an output that is the same matrix as the
    embeddings is stored twice, and each device has a compute buffer of its own.
    """
    if not devices or not (gpu_layers or moved):
        return tuple(Placement(HOST, part, size) for part, size in parts.items() if size)
    layers = device_layers(config, settings, devices, gpu_layers)
    moves, largest = _moves(devices, layers, moved)
    apart = _without_experts(config, moved)
    # What is computed elsewhere than its layer forbids it, see `_overlaps`.
    overlaps = not moved and _overlaps(config, settings, devices, gpu_layers)
    copies = _COPIES if overlaps else 1
    _, embedding, tied = token_embedding(config)
    # Of all that is in no layer the embedding alone stays on the host.
    others = config.size_bytes - sum(config.layer_bytes) - embedding if embedding or not tied else 0
    output = others + embedding * tied
    host = dict(parts)
    host["weights"] = config.size_bytes - (others if gpu_layers else 0) + moves[HOST]
    if gpu_layers > config.layers:
        host["compute"] = copies * (step.mask + step.rows) + step.rows
        if moves[HOST] > 0:  # it computes the experts of each block, and no attention
            host["compute"] = max(host["compute"], step.block - step.mask - step.rows)
    else:
        host["compute"] = step.block
    cells = layer_cells(config)
    placed: list[Placement] = []
    for device, numbers in zip(devices, layers, strict=True):
        own = [number for number in numbers if number < config.layers]
        share = len(own) / max(config.layers, 1)
        there: dict[Part, int] = {
            "weights": sum(config.layer_bytes[number] for number in own),
            "kv": share_of(parts["kv"], cells, own),
            "recurrent": share_of(parts["recurrent"], layer_states(config), own),
        }
        if "adapters" in parts:  # each matrix is where the one is that it changes
            there["adapters"] = int(parts["adapters"] * share)
        for part, size in there.items():
            host[part] -= size
        there["weights"] += moves[device.name] + (output if config.layers in numbers else 0)
        if numbers and settings.mmproj_offload and "projector" in parts:  # it goes as a whole
            there["projector"] = int(parts["projector"] * len(numbers) / gpu_layers)
            host["projector"] -= there["projector"]
        there["compute"] = _compute(config, step, numbers, copies, apart)
        if numbers and not device.name.startswith(_PLAIN):
            there["compute"] += largest
        placed += [Placement(device.name, part, size) for part, size in there.items() if size]
    return (*(Placement(HOST, part, size) for part, size in host.items() if size), *placed)


def _alone(settings: Settings) -> Settings:
    """Of a draft model, which goes to the devices as a whole."""
    return msgspec.structs.replace(settings, tensor_split=())


def storage_beside(
    config: ModelConfig,
    settings: Settings,
    devices: tuple[DeviceMemory, ...],
    beside: Beside,
    gpu_layers: int,
) -> dict[str, int]:
    """Bytes of its weights and cells by device, with so many of the model's layers on GPUs."""
    taken, found = beside.taken, Counter[str]()
    if (model := beside.model) is not None:
        parts: dict[Part, int] = {
            "weights": beside.weights,
            "kv": taken.kv,
            "recurrent": taken.recurrent,
            "compute": 0,
        }
        step = step_bytes(model, beside.contexts[0])
        placed = place(model, _alone(settings), devices, parts, step, model.layers + 1)
        for each in placed:
            found[each.device] += each.nbytes * (each.part != "compute")
        return found
    cells = [n * (number >= beside.first) for number, n in enumerate(layer_cells(config))]
    if not any(cells):  # heads
        cells = [int(number >= beside.first) for number in range(config.layers)]
    found[HOST] = taken.kv + taken.recurrent
    layers = device_layers(config, settings, devices, gpu_layers)
    for device, numbers in zip(devices, layers, strict=True):
        own = [number for number in numbers if number < config.layers]
        found[device.name] = share_of(taken.kv + taken.recurrent, cells, own)
        found[HOST] -= found[device.name]
    return found


def last_device(
    config: ModelConfig,
    settings: Settings,
    devices: tuple[DeviceMemory, ...],
    beside: Beside,
    gpu_layers: int,
) -> str:
    """Where its last layer is: its compute buffers are taken to be there, as large as on the CPU,
    until llama.cpp is asked."""
    last, count = config.layers, gpu_layers
    if (model := beside.model) is not None:
        config, settings, last, count = model, _alone(settings), model.layers, model.layers + 1
    layers = device_layers(config, settings, devices, count) if gpu_layers else []
    own = [d.name for d, numbers in zip(devices, layers, strict=False) if last in numbers]
    return own[0] if own else HOST


def _moves(
    devices: tuple[DeviceMemory, ...], layers: list[list[int]], moved: tuple[Moved, ...]
) -> tuple[dict[str, int], int]:
    """Bytes that each device has more or less by it, and the most that a GPU copies to itself at
    once, where it computes many rows with what lies on the CPU: of three matrices one."""
    found = dict.fromkeys((HOST, *(device.name for device in devices)), 0)
    largest = 0
    for each in moved:
        own = [d.name for d, numbers in zip(devices, layers, strict=True) if each.layer in numbers]
        source, target = own[0] if own else HOST, each.device if each.device in found else HOST
        found[source] -= each.nbytes
        found[target] += each.nbytes
        if source != target == HOST:
            largest = max(largest, each.nbytes // 2)
    return found, largest


def layer_cells(config: ModelConfig) -> list[int]:
    """Elements of a cell in each layer."""
    widths = layer_widths(config)
    return [sum(each) for each in widths] + [0] * (config.layers - len(widths))


def layer_states(config: ModelConfig) -> list[int]:
    """1 for each layer that has a recurrent state: one without cells, or all."""
    trunk = config.layers - config.nextn_layers
    found = [int(not heads) for heads in config.kv_heads[:trunk]]
    found = found if any(found) else [1] * trunk
    return found + [0] * (config.layers - len(found))


def share_of(nbytes: int, weights: Sequence[int], layers: Iterable[int]) -> int:
    """Of what all layers take by their weights, what these do."""
    return nbytes * sum(weights[number] for number in layers) // (sum(weights) or 1)


def device_layers(
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


def _without_experts(config: ModelConfig, moved: tuple[Moved, ...]) -> set[int]:
    """Layers whose experts are elsewhere."""
    left = dict(enumerate(config.expert_bytes))
    for each in moved:
        if each.layer in left:
            left[each.layer] -= each.nbytes
    return {layer for layer, size in left.items() if size <= 0 < config.expert_bytes[layer]}


def _compute(
    config: ModelConfig, step: Step, layers: list[int], copies: int, apart: set[int]
) -> int:
    """Bytes of the compute buffer of a device with these layers. Their input rows come from another
    device.

    apart: layers whose experts are computed elsewhere
    """
    if not layers:
        return 0
    output = step.output if config.layers in layers else 0
    more = copies if copies > 1 else 0
    if layers == [config.layers]:
        return output + more * output * config.embedding // (config.vocab_size + config.embedding)
    inputs = (copies - 1) * step.mask + more * step.rows
    whole = [number for number in layers if number < config.layers - 1]
    block = step.last if not whole else step.mixing
    if set(whole) - apart:
        block = step.block - step.rows
    return max(block, output) + inputs
