"""The model's weights: loaded with progress, from the files that were checked."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from worker import log
from worker.errors import ResidencyError, UsageError
from worker.gguf.header import ModelFile
from worker.gguf.reader import read_header
from worker.gguf.source import pin
from worker.gguf.splits import open_header
from worker.llama import library
from worker.llama.adapters import Adapters
from worker.llama.library import native
from worker.llama.process.memory import blocks_kept, give_back
from worker.llama.residency import check_layers, check_tensors, weights_residency
from worker.llama.signatures import TensorPlace
from worker.model.overrides import Override

_ALL_LAYERS = 10_000
_SPLIT_MODES = {"none": 0, "layer": 1, "row": 2}


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to load.

    n_gpu_layers  layers to offload, the last ones first; below 0: all; None: all, given a GPU
    devices       the ones to compute on, by name; empty: the CPU alone; None: all that are there,
                  where a GPU computes large batches even if no layer is offloaded
    mlock         keep it in memory, as far as the system allows
    files         the model's files as they were checked (`ModelConfig.files`), so that no others
                  are loaded; empty: whatever is there now
    overrides     keys that count before the files'
    heads         also layers that guess tokens, which follow the model's own
    no_alloc      only what contexts ask of it: no weight is read, and contexts take no memory
    adapters      files of adapters as they were checked, by their digest
    placed        expressions, and the device of the tensors that they match; the first one counts
    """

    n_gpu_layers: int | None = None
    devices: tuple[str, ...] | None = None
    tensor_split: tuple[float, ...] = ()
    split_mode: str = "layer"
    main_gpu: int = 0
    mmap: bool = False
    mlock: bool = False
    vocab_only: bool = False
    heads: bool = False
    no_alloc: bool = False
    files: tuple[ModelFile, ...] = ()
    overrides: tuple[Override, ...] = ()
    adapters: Mapping[bytes, ModelFile] = {}
    placed: tuple[tuple[str, str], ...] = ()


# What llama.cpp says of a file system that cannot map files, as some network and FUSE ones.
_UNMAPPED = "mmap failed"
_READ_IT = "Start the worker with --no-mmap, or copy the file to another file system."
_MAPPED = "_Mapped"  # ends the name of a buffer that is the file's mapping
_CHECK_IT = "Check the file with `worker show`, or download it again."


class Weights:
    """A loaded model. A context manager; it frees the model.

    files  that it was loaded from
    """

    def __init__(
        self, path: Path, options: LoadOptions, on_progress: Callable[[float], bool] | None = None
    ) -> None:
        """Load the model whose first or only file is `path`.

        `on_progress` gets 0..1 and returns False to give up.

        Raises ModelLoadError with llama.cpp's reason, DoesNotFitError where memory ran out,
        ModelFileError (CHANGED) for files that are no longer those of `options`, ResidencyError
        when layers are not where `options` asked for, UsageError for an unknown device.
        """
        library.start()
        self.handle: Any = None
        self.files = options.files or open_header(path).files
        named = options.devices
        offloading = [
            device.name
            for device in library.devices()
            if device.offloads and (named is None or device.name in named)
        ]
        n_gpu_layers = _layers_to_offload(options, offloading)
        params, kept = _params(options, n_gpu_layers, on_progress)
        try:
            with pin(options.files) as paths:
                self.residency = weights_residency(self._load(path, paths, params))
                if not options.vocab_only:
                    check_layers(self.residency, n_gpu_layers, offloading)
                    if options.mmap:  # its buffers hold the file, offloaded or not: no check
                        self._give_back(paths or [path])
                    else:
                        self._check_tensors(path, paths, offloading, options.placed)
            del kept
            self.adapters = Adapters(self.handle, options.adapters)
        except BaseException:
            self.close()
            raise
        self.vocab_size = native.llama_vocab_n_tokens(
            native.llama_model_get_vocab(self.handle)  # pyright: ignore[reportArgumentType]
        )
        self.num_layers = native.llama_model_n_layer(self.handle)  # without heads
        self.n_ctx_train = native.llama_model_n_ctx_train(self.handle)
        self.sliding_window = native.llama_model_n_swa(self.handle)  # 0 where there is none

    def _load(self, path: Path, paths: Sequence[str], params: Any) -> list[str]:
        """Have llama.cpp load the model; returns the lines that it logs.

        `paths` lead to the model's files, in order. Where there are none, llama.cpp loads `path`
        and finds the other files of a split model by their names.
        """
        with library.capture_log() as lines, blocks_kept():
            if paths:
                names = (ctypes.c_char_p * len(paths))(*map(os.fsencode, paths))
                handle = native.llama_model_load_from_splits(names, len(paths), params)  # pyright: ignore
            else:
                handle = native.llama_model_load_from_file(os.fsencode(path), params)
        if not handle:
            unmapped = any(_UNMAPPED in line for _, line in lines)
            raise library.failure(
                f"llama.cpp could not load {path.name}",
                lines,
                hint=_READ_IT if unmapped else _CHECK_IT,
                smaller="Free memory, or take a smaller quant level.",
            )
        self.handle = handle
        return [line for _, line in lines]

    def _give_back(self, paths: Sequence[str | Path]) -> None:
        """Give back the pages of a mapped file, if any of its tensors lie elsewhere now. Else all
        are used but rows of an embedding that no text has named yet."""
        if any(not name.endswith(_MAPPED) for name, _ in self.residency.buffers):
            give_back(paths)

    def _check_tensors(
        self,
        path: Path,
        paths: Sequence[str],
        offloading: Sequence[str],
        placed: tuple[tuple[str, str], ...],
    ) -> None:
        if any(device in offloading for device in self.residency.layers):
            headers = [read_header(name) for name in paths] or [open_header(path)]
            tensors = [tensor for header in headers for tensor in header.tensors]
            check_tensors(self.residency, tensors, offloading, placed)

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
        """Free the model; safe to call again. Its contexts must be closed before."""
        if self.handle:
            native.llama_model_free(self.handle)
            self.handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _layers_to_offload(options: LoadOptions, offloading: Sequence[str]) -> int:
    wanted = options.n_gpu_layers
    if wanted is None:
        return _ALL_LAYERS if offloading else 0
    if wanted and not offloading:
        raise ResidencyError(
            "Layers were to be offloaded, but this build sees no GPU.",
            hint="Start with --n-gpu-layers 0, or install a build for this machine's GPU "
            "(`make install BACKEND=cuda|metal|vulkan`).",
        )
    return _ALL_LAYERS if wanted < 0 else wanted


def _params(
    options: LoadOptions, n_gpu_layers: int, on_progress: Callable[[float], bool] | None
) -> tuple[Any, list[object]]:
    """llama.cpp's parameters, and the objects they point to, which must live while it loads."""
    params = native.llama_model_default_params()
    params.n_gpu_layers = n_gpu_layers
    params.split_mode = _SPLIT_MODES[options.split_mode]
    params.main_gpu = options.main_gpu
    params.load_mode = options.mmap + 2 * options.mlock
    params.vocab_only = options.vocab_only
    params.load_mtp, params.no_alloc = options.heads, options.no_alloc
    kept: list[object] = []
    if options.devices is not None:
        handles = library.device_handles()
        unknown = [name for name in options.devices if name not in handles]
        if unknown:
            raise UsageError(
                f"There is no device {unknown[0]!r}.",
                hint=f"Name one that this build sees: {', '.join(handles)}.",
            )
        array = (ctypes.c_void_p * (len(options.devices) + 1))(
            *[handles[name] for name in options.devices], None
        )
        kept.append(array)
        params.devices = ctypes.cast(array, ctypes.c_void_p)  # pyright: ignore
    if options.tensor_split:
        count = native.llama_max_devices()
        if len(options.tensor_split) > count:
            raise UsageError(f"--tensor-split names more than {count} devices.")
        shares = (ctypes.c_float * count)(*options.tensor_split)
        kept.append(shares)
        params.tensor_split = shares
    if options.placed:
        devices = library.buffer_types()
        array = (TensorPlace * (len(options.placed) + 1))(
            *(TensorPlace(pattern.encode(), devices[device]) for pattern, device in options.placed)
        )
        kept.append(array)
        params.tensor_buft_overrides = ctypes.addressof(array)  # pyright: ignore
    if options.overrides:
        array = _overrides(options.overrides)
        kept.append(array)
        params.kv_overrides = array
    if on_progress is not None:
        callback = native.llama_progress_callback(_guard(on_progress))
        kept.append(callback)
        params.progress_callback = callback
    return params, kept


def _overrides(overrides: Sequence[Override]) -> Any:
    """llama.cpp's array of them, which ends with an empty key."""
    array = (native.llama_model_kv_override * (len(overrides) + 1))()
    for place, (key, value) in zip(array, overrides, strict=False):
        place.key = key.encode()
        match value:
            case bool():
                place.tag, place.value.val_bool = native.LLAMA_KV_OVERRIDE_TYPE_BOOL, value
            case int():
                place.tag, place.value.val_i64 = native.LLAMA_KV_OVERRIDE_TYPE_INT, value
            case float():
                place.tag, place.value.val_f64 = native.LLAMA_KV_OVERRIDE_TYPE_FLOAT, value
            case str():
                place.tag, place.value.val_str = native.LLAMA_KV_OVERRIDE_TYPE_STR, value.encode()
    return array


def _guard(report: Callable[[float], bool]) -> Callable[[float, object], bool]:
    def progress(share: float, _user: object) -> bool:
        try:
            return bool(report(share))
        except Exception:  # noqa: BLE001  (an exception cannot cross the C frames)
            log.get("llama").exception("the progress callback failed")
            return False

    return progress
