"""The model's weights: loaded with progress, and where each layer landed read back."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec

from worker import log
from worker.errors import ModelLoadError, ResidencyError, UsageError
from worker.gguf.splits import open_header
from worker.llama import library
from worker.llama.library import native
from worker.machine import human_bytes

ALL_LAYERS = 10_000
# A buffer's size is printed as MiB with two decimals; tensors in it begin at multiples of 32.
_ROUNDING, _PADDING = 5300, 32
_SPLIT_MODES = {"none": 0, "layer": 1, "row": 2}
_LAYER = re.compile(r"load_tensors: layer\s+(\d+) assigned to device (\S+?),")
_BLOCK = re.compile(r"blk\.(\d+)\.")
_BUFFER = re.compile(r"load_tensors:\s+(\S+) model buffer size =\s+([\d.]+) MiB")


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to load. n_gpu_layers: None offloads all layers where there is a GPU."""

    n_gpu_layers: int | None = None
    devices: tuple[str, ...] = ()
    tensor_split: tuple[float, ...] = ()
    split_mode: str = "layer"
    main_gpu: int = 0
    mmap: bool = False
    vocab_only: bool = False


class Residency(msgspec.Struct, frozen=True):
    """Where the weights are, as llama.cpp itself reported it.

    layers   device of each layer; the last entry is the output layer
    buffers  (buffer type, bytes rounded to 10 KiB as printed)
    """

    layers: tuple[str, ...]
    buffers: tuple[tuple[str, int], ...]


class Weights:
    """A loaded model; a context manager that frees it."""

    def __init__(
        self,
        path: Path,
        options: LoadOptions,
        on_progress: Callable[[float], bool] | None = None,
    ) -> None:
        """Load the file. `on_progress` gets 0..1 and returns False to give up.

        Raises ModelLoadError with llama.cpp's reason, ResidencyError when layers are not where
        `options` asked for, UsageError for an unknown device.
        """
        library.start()
        offloading = [device.name for device in library.devices() if device.offloads]
        n_gpu_layers = self._layers_to_offload(options, offloading)
        params = native.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        params.split_mode = _SPLIT_MODES[options.split_mode]
        params.main_gpu = options.main_gpu
        params.load_mode = 1 if options.mmap else 0
        params.vocab_only = options.vocab_only
        # References that the native side reads during the load only.
        keep: list[object] = []
        if options.devices:
            handles = library.device_handles()
            unknown = [name for name in options.devices if name not in handles]
            if unknown:
                raise UsageError(
                    f"There is no device {unknown[0]!r}.",
                    hint=f"This build sees: {', '.join(handles)}.",
                )
            array = (ctypes.c_void_p * (len(options.devices) + 1))(
                *[handles[name] for name in options.devices], None
            )
            keep.append(array)
            params.devices = ctypes.cast(array, ctypes.c_void_p)  # pyright: ignore
        if options.tensor_split:
            count = native.llama_max_devices()
            if len(options.tensor_split) > count:
                raise UsageError(f"--tensor-split names more than {count} devices.")
            shares = (ctypes.c_float * count)(*options.tensor_split)
            keep.append(shares)
            params.tensor_split = shares
        if on_progress is not None:
            report = on_progress

            def progress(share: float, _user: object) -> bool:
                try:
                    return bool(report(share))
                except Exception:  # noqa: BLE001  (an exception cannot cross the C frames)
                    log.get("llama").exception("the progress callback failed")
                    return False

            params.progress_callback = native.llama_progress_callback(progress)
        with library.capture_log() as lines:
            handle = native.llama_model_load_from_file(str(path).encode(), params)
        del keep
        if not handle:
            raise ModelLoadError(
                f"llama.cpp could not load {path.name}: {library.reason(lines)}.",
                hint="Check the file with `worker show`, or download it again.",
            )
        self.handle: Any = handle
        self.path = path
        try:
            self.residency = _read_residency([line for _, line in lines])
            if not options.vocab_only:
                self._check_residency(n_gpu_layers, offloading)
                if not options.mmap:  # a mapping holds the file, offloaded or not
                    self._check_strays(offloading)
        except BaseException:
            self.close()
            raise
        self.vocab_size = native.llama_vocab_n_tokens(
            native.llama_model_get_vocab(handle)  # pyright: ignore[reportArgumentType]
        )
        self.n_layers = native.llama_model_n_layer(handle)
        self.n_ctx_train = native.llama_model_n_ctx_train(handle)
        self.sliding_window = native.llama_model_n_swa(handle)  # 0 where there is none
        self.size_bytes = native.llama_model_size(handle)
        self.n_params = native.llama_model_n_params(handle)

    def _layers_to_offload(self, options: LoadOptions, offloading: list[str]) -> int:
        wanted = options.n_gpu_layers
        if wanted is None:
            return ALL_LAYERS if offloading else 0
        if wanted and not offloading:
            raise ResidencyError(
                "Layers were to be offloaded, but this build sees no GPU.",
                hint="Start with --n-gpu-layers 0, or install a build for this machine's GPU "
                "(`make install BACKEND=cuda|metal|vulkan`).",
            )
        return ALL_LAYERS if wanted < 0 else wanted

    def _check_residency(self, asked: int, offloading: list[str]) -> None:
        layers = self.residency.layers
        expected = min(asked, len(layers))
        offloaded = sum(device in offloading for device in layers)
        if not layers:
            raise ResidencyError(
                "llama.cpp did not say where the layers are, so residency cannot be verified."
            )
        if offloaded < expected:
            stray = [i for i, device in enumerate(layers) if device not in offloading]
            raise ResidencyError(
                f"{expected} of {len(layers)} layers were to be offloaded, {offloaded} were; "
                f"on the CPU: {_ranges(stray)}.",
                hint="Lower --n-gpu-layers or free device memory.",
            )

    def _check_strays(self, offloading: list[str]) -> None:
        """Compare the bytes on the host with those of the tensors that belong there.

        llama.cpp assigns a layer to a device and then keeps a tensor on the host that the device
        cannot compute with; of that it tells in one debug line, and of the first such tensor only.
        """
        layers = self.residency.layers
        if not any(device in offloading for device in layers):
            return
        header = open_header(self.path)
        belonging, blocks = 0, dict[int, int]()
        for tensor in header.tensors:
            block = _BLOCK.match(tensor.name)
            number = int(block[1]) if block else len(layers) - 1
            there = layers[number] in offloading if number < len(layers) else False
            if there and block:
                blocks[number] = blocks.get(number, 0) + tensor.nbytes
            elif not (there and tensor.name.startswith("output")):
                belonging += tensor.nbytes
        buffers = [n for name, n in self.residency.buffers if library.device_of(name) == "CPU"]
        stray = sum(buffers) - belonging
        slack = _ROUNDING * len(buffers) + _PADDING * len(header.tensors)
        if blocks and stray + slack >= min(blocks.values()):
            raise ResidencyError(
                f"{human_bytes(stray)} of the layers that were to be offloaded stayed on the CPU.",
                hint="The device cannot compute with these encodings: take another quantisation, "
                "or a lower --n-gpu-layers.",
            )
        if stray > slack:
            log.get("llama").warning("tensors of offloaded layers are on the CPU", nbytes=stray)

    @property
    def is_recurrent(self) -> bool:
        """Whether the state cannot be cut back to an earlier token (recurrent or hybrid)."""
        return bool(
            native.llama_model_is_recurrent(self.handle)
            or native.llama_model_is_hybrid(self.handle)
        )

    @property
    def generates(self) -> bool:
        """Whether the model is a decoder that can be continued token by token."""
        return bool(
            native.llama_model_has_decoder(self.handle)
            and not native.llama_model_has_encoder(self.handle)
            and not native.llama_model_is_diffusion(self.handle)
        )

    def close(self) -> None:
        """Free the model; safe to call again. Contexts must be closed before."""
        if self.handle:
            native.llama_model_free(self.handle)
            self.handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read_residency(lines: list[str]) -> Residency:
    layers: dict[int, str] = {}
    buffers: dict[str, int] = {}
    for line in lines:
        if found := _LAYER.search(line):
            layers[int(found[1])] = found[2]
        elif found := _BUFFER.search(line):
            buffers[found[1]] = buffers.get(found[1], 0) + int(float(found[2]) * 2**20)
    ordered = tuple(layers[i] for i in sorted(layers))
    return Residency(layers=ordered, buffers=tuple(buffers.items()))


def _ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 7] -> '0-2, 7'."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
