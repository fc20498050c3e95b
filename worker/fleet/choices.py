"""The options of a model's replicas: read by the parser of `worker serve`, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from worker.cli.main import parse
from worker.errors import UsageError
from worker.options import OPTIONS
from worker.settings import Settings, make

# What a replica tells its worker itself.
_OWN = (
    "model", "alias", "model_ref", "host", "port", "public_host", "local_mode", "api_key",
    "worker_id", "callback_url", "heartbeat_url", "heartbeat_interval", "die_with_parent",
    "page", "log_format",
)  # fmt: skip

# Where the options do not say: streams of a replica that is taken away get this long, and a
# replica is given a CPU of its own.
DRAIN_S = 60.0
_THREADS = 1


def settings_of(options: Sequence[str], file: str | None = None) -> Settings:
    """The settings of a worker that is started with these options. Raises UsageError.

    The environment of this process does not count: a replica runs in another.
    """
    try:
        arguments = vars(parse(["serve", *options]))
    except SystemExit:
        raise UsageError("--help is no option of a worker that serves.") from None
    for option in OPTIONS:
        if option.field in _OWN and arguments.get(option.field) is not None:
            raise UsageError(f"{option.flags[0]} is for the fleet to say.")
    settings = make({**arguments, "model": file}, {})
    if arguments.get("drain_timeout") is None:
        settings = replace(settings, drain_timeout=DRAIN_S)
    return replace(settings, threads=settings.threads or _THREADS)


def check_choices(options: Sequence[str], *, has_servers: bool, has_gpus: bool) -> None:
    """Raise UsageError where `worker serve` would refuse the options.

    has_servers: the fleet starts RPC servers for the model; has_gpus: it gives it GPUs
    """
    settings = settings_of(options)
    if settings.rpc and has_servers:
        raise UsageError("--rpc is for the fleet to say.")
    if settings.rpc and has_gpus:
        raise UsageError("--rpc and `gpus` exclude each other.")
    named = [name for name in settings.device if name.lower() != "none"]
    if named or (settings.device and has_gpus):
        raise UsageError("--device is for the fleet to say: `gpus` asks for some.")
    if settings.n_gpu_layers and not (has_gpus or has_servers or settings.rpc):
        raise UsageError("--n-gpu-layers needs `gpus`.")
