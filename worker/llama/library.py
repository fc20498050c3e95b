"""The shared library: its environment, its log, its build, the devices that it sees."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from worker import log
from worker.errors import DoesNotFitError, ModelLoadError
from worker.gguf.foreign import MORE_FILES
from worker.llama import signatures, soundness, variants
from worker.llama.process import death, openmp


@contextlib.contextmanager
def bare_package() -> Generator[Any]:
    """Inside, modules of llama_cpp can be imported without its `__init__` being run.

    Gives what stands for the package meanwhile, or the package where it is there already.
    That of llama_cpp imports its high-level API, and with it templates, a disk cache, sqlite and
    multiprocessing, which nobody here calls. Whoever imports the package later gets it
    whole, with the modules that are there already.
    """
    name = "llama_cpp"
    spec = importlib.util.find_spec(name)
    if spec is None or name in sys.modules:
        yield sys.modules.get(name)  # where there is none, the import inside says so
        return
    sys.modules[name] = empty = importlib.util.module_from_spec(spec)
    try:
        yield empty
    finally:
        del sys.modules[name]


# libgomp reads its variables when it is loaded. So they are set before the bindings are imported.
openmp.prepare()
death.watch()

with bare_package():
    import llama_cpp.llama_cpp as native

openmp.drop_spin_variable()

FOLDER = Path(native._lib._name).parent  # pyright: ignore
DEVICE_KINDS = ("cpu", "gpu", "igpu", "accelerator", "meta")  # enum ggml_backend_dev_type
_OFFLOADING = ("gpu", "igpu")
_LEVELS = {1: "debug", 2: "info", 3: "warning", 4: "error"}  # enum ggml_log_level
_CONTINUED = 5  # GGML_LOG_LEVEL_CONT: more of the line before
# Warnings of what is meant to be so. llama.cpp takes the cache that all share for the length of one
# sequence, and none grows over the trained length (`LlamaBackend.max_length`). Windows are never
# cut down (`Context`). Where cells run out, who decodes makes room (`OutOfCells`).
_HARMLESS = (
    ": sharing with layer ",  # an assistant's layers, with the model's cells
    "possible training context overflow",
    "using full-size SWA cache",
    "failed to find a memory slot",
)
# It comes for each such token of a vocabulary.
_LIKE_CONTROL = "control-looking token"


class Device(msgspec.Struct, frozen=True):
    """One compute device as ggml names it. Memory in bytes, 0 where the backend does not tell."""

    name: str
    description: str
    backend: str
    kind: str
    memory_free: int
    memory_total: int

    @property
    def offloads(self) -> bool:
        """Whether it has or manages memory for layers, so that they need not be on the host."""
        return self.kind in _OFFLOADING


class Build(msgspec.Struct, frozen=True):
    """How the installed library was built.

    variant  which of a build for many CPUs this process computes with; "" in one for this CPU
    """

    bindings: str
    backends: tuple[str, ...]
    gpu_offload: bool
    rpc: bool
    variant: str
    system_info: str


class NativeLog:
    """Receives llama.cpp's log: each line goes to structlog and to whoever captures.

    llama.cpp has one log for all threads, and writes a line in pieces: each thread's is kept apart.
    """

    def __init__(self) -> None:
        self._captures: list[tuple[int, list[tuple[str, str]]]] = []  # thread, its lines
        self._unfinished: dict[int, tuple[str, str]] = {}  # thread -> level and begin of its line
        self._muted: set[int] = set()  # threads whose models are ours
        self._has_control_tokens = False  # it was said of the model
        self._lock = threading.Lock()
        self._log = log.get("llama.cpp")
        # ctypes keeps no reference to the callback: it must live as long as the library.
        self.callback = native.llama_log_callback(self._receive)

    def _receive(self, level: int, text: bytes, _user: object) -> None:
        thread = threading.get_native_id()
        with self._lock:
            name, begin = self._unfinished.pop(thread, ("info", ""))
            if level != _CONTINUED:
                name = _LEVELS.get(level, name)
            *lines, rest = (begin + text.decode("utf-8", "replace")).split("\n")
            if rest:
                self._unfinished[thread] = (name, rest)
            for owner, capture in self._captures:
                if owner == thread:
                    capture += [(name, line) for line in lines]
        if thread in self._muted:
            return
        for line in lines:
            if _LIKE_CONTROL in line:
                self._say_control_tokens()
            elif name in ("warning", "error") and not any(text in line for text in _HARMLESS):
                self._log.warning(line.strip())
            elif line.strip(". "):  # a load's progress is dots
                self._log.debug(line.strip())

    def _say_control_tokens(self) -> None:
        if not self._has_control_tokens:
            self._has_control_tokens = True
            self._log.info(
                "control tokens that the file marks as text are treated as control tokens",
                console="",
            )

    @contextlib.contextmanager
    def mute(self) -> Generator[None]:
        """Log nothing of what this thread does: it has a model of our own."""
        thread = threading.get_native_id()
        self._muted.add(thread)
        try:
            yield
        finally:
            self._muted.discard(thread)

    @contextlib.contextmanager
    def capture(self) -> Generator[list[tuple[str, str]]]:
        """Every (level, line) that llama.cpp writes in this thread while the block runs."""
        lines: list[tuple[str, str]] = []
        with self._lock:
            self._captures.append((threading.get_native_id(), lines))
        try:
            yield lines
        finally:
            with self._lock:
                self._captures = [each for each in self._captures if each[1] is not lines]


def quick(function: Any) -> Any:
    """A native function that keeps Python's lock, for calls of less than a microsecond.

    Who gives it away for each of 128,000 tokens waits for it so often while another one computes.
    """
    found = ctypes.PyDLL(None, handle=native._lib._handle)[function.__name__]  # pyright: ignore
    found.restype, found.argtypes = function.restype, function.argtypes
    return found


def floats(pointer: Any, count: int) -> np.ndarray:
    """What a `float *` leads to, float32 [count], not copied."""
    made: Any = (ctypes.c_float * count).from_address(ctypes.addressof(pointer.contents))
    return np.frombuffer(made, np.float32)


def pointer_to(array: np.ndarray) -> Any:
    """An argument for `uint8_t *` or `int32_t *`; numpy's `data_as` makes a cycle that keeps it."""
    item = ctypes.c_uint8 if array.dtype == np.uint8 else ctypes.c_int32
    return ctypes.byref(item.from_address(array.ctypes.data))


_log = NativeLog()
capture_log = _log.capture
mute_log = _log.mute


def reason(lines: list[tuple[str, str]]) -> str:
    """The cause of a failure: the first error among captured lines, without the function's name."""
    errors = [line for level, line in lines if level == "error"]
    if not errors:
        return "llama.cpp gave no reason"
    # The errors behind the first one say which callers gave up.
    return errors[0].split(": ", 1)[-1].strip().rstrip(".")


def failure(
    what: str, lines: list[tuple[str, str]], *, hint: str | None = None, smaller: str
) -> ModelLoadError | DoesNotFitError:
    """The error for what llama.cpp could not make. smaller: what helps where memory ran out"""
    why = reason(lines)
    if "alloc" in why.lower() or "memory" in why.lower():  # on the host or a device
        return DoesNotFitError(f"{what}: {why}.", hint=smaller)
    if "too many open files" in why.lower():
        hint = MORE_FILES
    return ModelLoadError(f"{what}: {why}.", hint=hint)


def interface() -> ctypes.CDLL:
    """The library with all that it exports, on which signatures can be set."""
    return ctypes.CDLL(None, handle=native._lib._handle)  # pyright: ignore


@functools.cache
def ggml() -> ctypes.CDLL:
    """The library with ggml's own functions, which the bindings do not wrap; signatures are set.

    They are looked up through libllama, so in what it has loaded: a wheel holds copies of ggml's
    libraries, each with a registry of its own. A build for many CPUs gets the backend for this one.
    Raises BackendError where there is none.
    """
    lib = interface()
    signatures.declare(lib, signatures.DEVICES)
    death.leave_with_reason(lib)
    native.llama_log_set(_log.callback, ctypes.c_void_p(0))
    # One that is loaded cannot be exchanged any more: so here its proof is waited for.
    chosen = variants.choose(FOLDER, lambda name: soundness.begin(name).verdict().is_sound)
    variants.load(lib, chosen)
    return lib


def start() -> None:
    """Initialise llama.cpp's backends; safe to call again."""
    ggml()  # an abort of what follows says why
    # Each time: the package llama_cpp takes the log when somebody imports all of it.
    native.llama_log_set(_log.callback, ctypes.c_void_p(0))
    native.llama_backend_init()


def build() -> Build:
    """What this library was built with, read from the library itself."""
    from importlib.metadata import version  # it takes longer than all else here

    lib = ggml()
    start()
    regs = [lib.ggml_backend_reg_get(i) for i in range(lib.ggml_backend_reg_count())]
    return Build(
        bindings=version("llama_cpp_python"),
        backends=tuple(lib.ggml_backend_reg_name(reg).decode() for reg in regs),
        gpu_offload=bool(native.llama_supports_gpu_offload()),
        rpc=bool(native.llama_supports_rpc()),
        variant=variant.name if (variant := variants.current()) else "",
        system_info=native.llama_print_system_info().decode().strip().rstrip("|").strip(),
    )


def reads_media() -> bool:
    """Whether the build has libmtmd, where the bindings look for it."""
    return any(Path(os.environ.get("MTMD_CPP_LIB", FOLDER)).glob("*mtmd*"))


def proof() -> soundness.Proof:
    """Of what this process computes with: known, or begun now in a child."""
    ggml()
    return soundness.begin(variant.name if (variant := variants.current()) else "")


def device_handles() -> dict[str, int]:
    """Device name -> ggml's handle, for `llama_model_params.devices`."""
    lib = ggml()
    handles = [lib.ggml_backend_dev_get(i) for i in range(lib.ggml_backend_dev_count())]
    return {lib.ggml_backend_dev_name(handle).decode(): handle for handle in handles}


def buffer_types() -> dict[str, int]:
    """Device name -> ggml's handle of its usual type of buffer."""
    lib = ggml()
    found = device_handles().items()
    return {name: lib.ggml_backend_dev_buffer_type(handle) for name, handle in found}


def device_of(buffer: str) -> str:
    """The device that a buffer lies on, from its type's name: RPC0[127.0.0.1:50052] -> RPC0.

    A GPU has one usual type, and others whose names begin with the GPU's (MTL0_Mapped). Any other
    is memory of the host (CPU_Mapped, CPU_REPACK, CUDA_Host).
    """
    lib = ggml()
    for name, handle in device_handles().items():
        if DEVICE_KINDS[lib.ggml_backend_dev_type(handle)] in _OFFLOADING:
            usual = lib.ggml_backend_buft_name(lib.ggml_backend_dev_buffer_type(handle)).decode()
            if buffer == usual or buffer.startswith(f"{name}_"):
                return name
    return "CPU"


def devices() -> tuple[Device, ...]:
    """The devices that this library sees, in the order in which it gives them layers.

    RPC servers come first (`llama_prepare_model_devices`), then the others in its own order.
    """
    lib = ggml()
    start()
    found: list[Device] = []
    for name, handle in device_handles().items():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        lib.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
        kind = int(lib.ggml_backend_dev_type(handle))
        reg = lib.ggml_backend_dev_backend_reg(handle)
        found.append(
            Device(
                name=name,
                description=lib.ggml_backend_dev_description(handle).decode(errors="replace"),
                backend=lib.ggml_backend_reg_name(reg).decode(),
                kind=DEVICE_KINDS[kind] if 0 <= kind < len(DEVICE_KINDS) else "unknown",
                memory_free=free.value,
                memory_total=total.value,
            )
        )
    return tuple(sorted(found, key=lambda device: device.backend != "RPC"))
