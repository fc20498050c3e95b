"""Where weights and KV cells are, and whether they are where they were asked to be.

llama.cpp puts on the host what a device cannot take, and says so in its log alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from worker import log
from worker.errors import ResidencyError
from worker.gguf.header import TensorInfo
from worker.gguf.quant import ENCODINGS
from worker.llama import library
from worker.llama.packing import packed_encodings
from worker.machine import human_bytes
from worker.memory.contexts import PIECE_ROWS
from worker.memory.offload import Part, Placement, device_for

if TYPE_CHECKING:  # the load begins before the engine is imported
    from worker.engine.backend import Kernels

HOST = "CPU"
_REPACKED = "CPU_REPACK"
# ggml's attention on a CPU works in tiles of so many rows (GGML_FA_TILE_Q): 64 rows of a prompt of
# the 125M shape take 67 ms of CPU time, 60 take 82. Each row of a tile computes with the cells of
# all sequences in the unified layout: 62 streams of the Llama-1B shape write 113 tokens a second,
# 64 write 50.
_TILE = 64
# Kernels of weights that are repacked compute so many rows at once, the rest four by four and one
# by one: Llama-1B, Q4_K, AVX-512, 12 rows take 102 ms, 15 take 120 and 16 take 87.
_ROW_BLOCK, _FEWEST = 16, 13
# ggml's fused attention on a CPU divides the cells of a row among the threads where the step has no
# other one and there are 512 (`use_split_kv_path`). Cells are counted in steps of 256, so that is
# from this position on.
_DIVIDED_FROM = 256
# Rows of a step that any number of sequences may share.
_ANY = 1 << 30
# Bytes of cells that are taken to be filled or copied in a second, a quarter of what was seen.
_COPIED_PER_S = 1e9
# A buffer's size is printed as MiB with two decimals; tensors in it begin at multiples of 32.
_ROUNDING, _PADDING = 5300, 32
_LAYER = re.compile(r"load_tensors: layer\s+(\d+) assigned to device (\S+?),")
_BUFFER = re.compile(r"load_tensors:\s+(\S+) model buffer size =\s+([\d.]+) MiB")
_KV_LAYER = re.compile(r"layer\s+(\d+): dev = (\S+)")
_KV_BUFFER = re.compile(r":\s+(\S+) (?:KV|RS) buffer size =\s+([\d.]+) MiB")
_COMPUTE_BUFFER = re.compile(r":\s+(\S+) compute buffer size =\s+([\d.]+) MiB")
_BLOCK = re.compile(r"blk\.(\d+)\.")

_Sizes = tuple[tuple[str, int], ...]
"""Type of each buffer and its bytes, rounded to 10 KiB as they are printed."""


class WeightsResidency(msgspec.Struct, frozen=True):
    """Where the weights are. `layers` has the device of each layer, the output layer's last."""

    layers: tuple[str, ...]
    buffers: _Sizes

    @property
    def is_on_cpu(self) -> bool:
        """Whether the CPU computes all of them."""
        return all(device == HOST for device in self.layers)


class CacheResidency(msgspec.Struct, frozen=True):
    """Where the cells and recurrent states are.

    layers     number and device of each layer that has some
    """

    layers: tuple[tuple[int, str], ...]
    kv_buffers: _Sizes
    compute_buffers: _Sizes


def weights_residency(lines: Sequence[str]) -> WeightsResidency:
    """Read it from the lines that llama.cpp logs while it loads a model."""
    layers = _devices(_LAYER, lines)
    return WeightsResidency(
        layers=tuple(layers[number] for number in sorted(layers)), buffers=_sizes(_BUFFER, lines)
    )


def cache_residency(lines: Sequence[str]) -> CacheResidency:
    """Read it from the lines that llama.cpp logs while it makes a context."""
    return CacheResidency(
        layers=tuple(sorted(_devices(_KV_LAYER, lines).items())),
        kv_buffers=_sizes(_KV_BUFFER, lines),
        compute_buffers=_sizes(_COMPUTE_BUFFER, lines),
    )


def _devices(pattern: re.Pattern[str], lines: Sequence[str]) -> dict[int, str]:
    return {int(found[1]): found[2] for line in lines if (found := pattern.search(line))}


def _sizes(pattern: re.Pattern[str], lines: Sequence[str]) -> _Sizes:
    sums: dict[str, int] = {}
    for line in lines:
        if found := pattern.search(line):
            sums[found[1]] = sums.get(found[1], 0) + int(float(found[2]) * 2**20)
    return tuple(sums.items())


def check_layers(weights: WeightsResidency, asked: int, offloading: Sequence[str]) -> None:
    """Raise ResidencyError unless `asked` layers are on `offloading`, the devices that take any."""
    layers = weights.layers
    if not layers:
        raise ResidencyError(
            "llama.cpp did not say where the layers are, so residency cannot be verified."
        )
    expected = min(asked, len(layers))
    stray = [number for number, device in enumerate(layers) if device not in offloading]
    if len(layers) - len(stray) < expected:
        raise ResidencyError(
            f"{expected} of {len(layers)} layers were to be offloaded, {len(layers) - len(stray)} "
            f"were; on the CPU: {_ranges(stray)}.",
            hint="Lower --n-gpu-layers or free device memory.",
        )


def check_tensors(
    weights: WeightsResidency,
    tensors: Sequence[TensorInfo],
    offloading: Sequence[str],
    placed: tuple[tuple[str, str], ...] = (),
) -> None:
    """Raise ResidencyError where a layer's worth of offloaded tensors is on the host.

    llama.cpp assigns a layer to a device and then keeps those tensors on the host that the device
    cannot compute with. It says so in one debug line, and only of the first such tensor. So the
    bytes on the host are compared with those of the tensors that belong there, in the order that
    takes the most: beside a GPU that can read the host's memory they keep that of the file.

    placed: see `LoadOptions`
    """
    layers = weights.layers
    if not any(device in offloading for device in layers):
        return
    growth = {encoding.name: encoding.growth for encoding in packed_encodings()}
    belonging, blocks = 0.0, dict[int, int]()
    for tensor in tensors:
        block = _BLOCK.match(tensor.name)
        number = int(block[1]) if block else len(layers) - 1
        there = layers[number] in offloading if number < len(layers) else False
        wished = device_for(tensor.name, placed)
        if wished is not None and wished != HOST:
            continue
        if wished is not None:
            belonging += tensor.nbytes * growth.get(ENCODINGS[tensor.type].name, 1)
        elif there and block:
            blocks[number] = blocks.get(number, 0) + tensor.nbytes
        elif not (there and tensor.name.startswith("output")):
            belonging += tensor.nbytes * growth.get(ENCODINGS[tensor.type].name, 1)
    buffers = [nbytes for name, nbytes in weights.buffers if library.device_of(name) == HOST]
    stray = sum(buffers) - round(belonging)
    slack = _ROUNDING * len(buffers) + _PADDING * len(tensors)
    if blocks and stray + slack >= min(blocks.values()):
        raise ResidencyError(
            f"{human_bytes(stray)} of the layers that were to be offloaded stayed on the CPU.",
            hint="The device cannot compute with these encodings: take another quant level, "
            "or a lower --n-gpu-layers.",
        )
    if stray > slack:
        log.get("llama").warning("tensors of offloaded layers are on the CPU", nbytes=stray)


def check_cells(weights: WeightsResidency, cache: CacheResidency) -> None:
    """Raise ResidencyError where an offloaded layer's KV cells silently stayed on the CPU."""
    layers = weights.layers
    stray = [
        number
        for number, device in cache.layers
        if number < len(layers) and device == HOST and layers[number] != HOST
    ]
    if stray:
        raise ResidencyError(
            f"The KV cache of {len(stray)} offloaded layers is on the CPU.",
            hint="Lower --ctx-size or --n-gpu-layers, so that it fits the device.",
        )


def _ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 7] -> '0-2, 7'."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def kernels_of(
    weights: WeightsResidency,
    cache: CacheResidency | None = None,
    num_cells: int = 1,
    capacity: int = 1,
    *,
    is_fused: bool = False,
) -> Kernels:
    """In which numbers of rows they compute well. cache: None: it is not there yet

    capacity: rows of a batch
    is_fused: attention is, and all layers have it; else a matrix is multiplied with one row in
        another way than with several
    """
    is_repacked = any(name == _REPACKED for name, _ in weights.buffers)
    on_cpu = cache is not None and any(device == HOST for _, device in cache.layers)
    nbytes = 0 if cache is None else sum(nbytes for _, nbytes in cache.kv_buffers)
    piece = min(PIECE_ROWS, capacity) if on_cpu else capacity
    lone = _DIVIDED_FROM if is_fused and not is_repacked else 0
    from worker.engine.backend import Kernels

    return Kernels(
        block=_ROW_BLOCK,
        fewest=_FEWEST if is_repacked else 0,
        tile=_TILE,
        mixed=_TILE - 1 if on_cpu else _ANY,
        few=_TILE - _ROW_BLOCK if on_cpu else _ANY,
        lone=lone if on_cpu else _ANY,
        piece=piece,
        wide=_TILE if on_cpu else 0,
        whole=_ROW_BLOCK if on_cpu else piece,
        cell_s=nbytes / num_cells / _COPIED_PER_S,
    )


def placements(
    weights: WeightsResidency, cache: CacheResidency, draft: _Sizes = ()
) -> tuple[Placement, ...]:
    """Bytes of weights, cells and compute buffers on each device; in one, those of what guesses.

    States of recurrent layers count as cells. The bytes are rounded to 10 KiB, as llama.cpp prints
    them.
    """
    parts: dict[Part, _Sizes] = {
        "weights": weights.buffers,
        "kv": cache.kv_buffers,
        "compute": cache.compute_buffers,
        "draft": draft,
    }
    sums: dict[tuple[str, Part], int] = {}
    for part, buffers in parts.items():
        for buffer, nbytes in buffers:
            key = (library.device_of(buffer), part)
            sums[key] = sums.get(key, 0) + nbytes
    return tuple(Placement(device, part, nbytes) for (device, part), nbytes in sums.items())
