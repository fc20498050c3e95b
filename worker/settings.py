"""One frozen Settings: argv over environment over defaults.

`OPTIONS` is the only table of option names. The command line's parser, its help and the
environment variables (`LLAMA_ARG_<NAME>` and the listed ones) are made from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from worker.errors import UsageError

BACKENDS = ("cpu", "cuda", "metal", "vulkan", "rpc")
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What this process was asked to be. `None` means: decided from the model and the machine."""

    model: str | None = None
    alias: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    ctx_size: int | None = None
    parallel: int = 4
    queue_size: int = 64
    max_stall_ms: int = 400
    draft: str = "none"
    threads: int | None = None
    threads_batch: int | None = None
    batch_size: int = 512
    ubatch_size: int = 512
    n_gpu_layers: int | None = None
    backend: str | None = None
    device: tuple[str, ...] = ()
    tensor_split: tuple[float, ...] = ()
    split_mode: str = "layer"
    main_gpu: int = 0
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attn: str = "auto"
    mmap: bool = False
    drain_timeout: float = 4.0
    log_format: str = "console"
    verbose: bool = False


class Option(msgspec.Struct, frozen=True):
    """One option: its field in Settings, its flags, how its text is read, and its help."""

    field: str
    flags: tuple[str, ...]
    read: Callable[[str], Any]
    help: str
    metavar: str = "N"
    env: tuple[str, ...] = ()


def _integer(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"must be a whole number, not {text!r}") from None
        if not low <= value <= high:
            raise ValueError(f"must be from {low} to {high}, not {value}")
        return value

    return read


def _number(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"must be a number, not {text!r}") from None
        if not low <= value <= high:
            raise ValueError(f"must be from {low:g} to {high:g}, not {text}")
        return value

    return read


def _one_of(*names: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in names:
            raise ValueError(f"must be one of {', '.join(names)}, not {text!r}")
        return text.lower()

    return read


def _text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _switch(text: str) -> bool:
    if text.lower() in ("1", "true", "on", "yes"):
        return True
    if text.lower() in ("0", "false", "off", "no"):
        return False
    raise ValueError(f"must be on or off, not {text!r}")


def _layers(text: str) -> int | None:
    if text.lower() == "auto":
        return None
    return 10_000 if text.lower() == "all" else _integer(-1, 10_000)(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _shares(text: str) -> tuple[float, ...]:
    return tuple(_number(0, 1e6)(part) for part in text.replace("/", ",").split(","))


_INT32 = 2**31 - 1

OPTIONS: tuple[Option, ...] = (
    Option(
        "model", ("--model", "-m"), _text, "GGUF file (default: the embedded demo model)", "FILE"
    ),
    Option(
        "alias", ("--alias", "-a", "--served-model-name"), _text, "model id in /v1/models", "NAME"
    ),
    Option("host", ("--host",), _text, "address to listen on (127.0.0.1)", "ADDR"),
    Option("port", ("--port",), _integer(0, 65535), "port to listen on; 0 takes a free one (8080)"),
    Option(
        "ctx_size",
        ("--ctx-size", "-c", "--n-ctx", "--max-model-len"),
        _integer(0, _INT32),
        "KV cells in all, shared by all sequences (fitted to model and memory)",
    ),
    Option(
        "parallel",
        ("--parallel", "-np", "--max-num-seqs"),
        _integer(1, 256),
        "sequences decoded at once (4)",
        env=("LLAMA_ARG_N_PARALLEL",),
    ),
    Option("queue_size", ("--queue-size",), _integer(0, 100_000), "requests that may wait (64)"),
    Option(
        "max_stall_ms",
        ("--max-stall-ms",),
        _integer(1, 60_000),
        "milliseconds that reading a prompt may make running streams wait (400)",
    ),
    Option(
        "draft",
        ("--draft",),
        _one_of("none", "ngram"),
        "guess tokens from the text itself and verify them in the same step (none)",
        "none|ngram",
    ),
    Option(
        "threads",
        ("--threads", "-t"),
        _integer(1, 4096),
        "compute threads (the CPUs this process may use)",
    ),
    Option(
        "threads_batch",
        ("--threads-batch", "-tb"),
        _integer(1, 4096),
        "compute threads for prompts (as --threads)",
    ),
    Option(
        "batch_size", ("--batch-size", "-b"), _integer(1, 65536), "tokens in a step, at most (512)"
    ),
    Option(
        "ubatch_size",
        ("--ubatch-size", "-ub"),
        _integer(1, 65536),
        "tokens computed at once inside a step (512)",
    ),
    Option(
        "n_gpu_layers",
        ("--n-gpu-layers", "--gpu-layers", "-ngl"),
        _layers,
        "layers to offload: a number, all, or auto (all, on a build with a GPU backend)",
        env=("LLAMA_ARG_N_GPU_LAYERS",),
    ),
    Option("backend", ("--backend",), _one_of(*BACKENDS), "refuse to run on anything else", "NAME"),
    Option("device", ("--device", "-dev"), _names, "devices to use, by name", "A,B"),
    Option("tensor_split", ("--tensor-split", "-ts"), _shares, "share of each device", "S,S"),
    Option(
        "split_mode",
        ("--split-mode", "-sm"),
        _one_of("none", "layer", "row"),
        "how to split over devices (layer)",
        "MODE",
    ),
    Option("main_gpu", ("--main-gpu", "-mg"), _integer(0, 255), "the device for split mode none"),
    Option(
        "cache_type_k", ("--cache-type-k", "-ctk"), _one_of(*CACHE_TYPES), "type of K (f16)", "TYPE"
    ),
    Option(
        "cache_type_v", ("--cache-type-v", "-ctv"), _one_of(*CACHE_TYPES), "type of V (f16)", "TYPE"
    ),
    Option(
        "flash_attn",
        ("--flash-attn", "-fa"),
        _one_of("on", "off", "auto"),
        "attention kernel (auto)",
        "MODE",
    ),
    Option(
        "mmap",
        ("--mmap",),
        _switch,
        "map the file instead of reading it: starts sooner, holds more memory (off)",
        "on|off",
    ),
    Option(
        "drain_timeout",
        ("--drain-timeout",),
        _number(0, 3600),
        "seconds running requests get at SIGTERM (4)",
        "SECONDS",
    ),
    Option(
        "log_format",
        ("--log-format",),
        _one_of("console", "json"),
        "console or json (console)",
        "FORMAT",
        env=("LLORCH_LOG_FORMAT",),
    ),
    Option("verbose", ("--verbose", "-v"), _switch, "also log what llama.cpp says (off)", "on|off"),
)


def env_names(option: Option) -> tuple[str, ...]:
    """Environment variables that set `option`, the first found wins."""
    return (f"LLAMA_ARG_{option.field.upper()}", *option.env)


def make(argv: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from parsed options (`None` = not given), then the environment, then defaults.

    Raises UsageError that names the variable when the environment holds an unusable value.
    """
    values: dict[str, Any] = {}
    for option in OPTIONS:
        given = argv.get(option.field)
        if given is not None:
            values[option.field] = given
            continue
        for name in env_names(option):
            if environ.get(name):
                try:
                    values[option.field] = option.read(environ[name])
                except ValueError as error:
                    raise UsageError(f"{name} {error}.", hint=f"Unset or correct {name}.") from None
                break
    if values.get("ctx_size") == 0:  # llama-server's way to say "as the model was trained"
        del values["ctx_size"]
    return Settings(**values)
