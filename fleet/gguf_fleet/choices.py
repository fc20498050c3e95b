"""The options of a model's replicas: what the file says of them, and the worker of that."""

from __future__ import annotations

from collections.abc import Sequence

from gguf_fleet.command import ask_plan
from gguf_fleet.errors import SaidError, UsageError

# What a replica tells its worker itself.
_OWN = (
    "model", "alias", "model_ref", "host", "port", "public_host", "local_mode", "api_key",
    "worker_id", "callback_url", "heartbeat_url", "heartbeat_interval", "die_with_parent",
    "page", "log_format", "trust_account", "relayed",
)  # fmt: skip
# Gateways ask workers over HTTP.
_TLS = ("ssl_cert_file", "ssl_key_file")

# Where the options do not say: streams of a replica that is taken away get this long, and a
# replica is given a CPU of its own.
DRAIN_S = 60.0
_DEFAULTS = ("--drain-timeout", f"{DRAIN_S:g}", "--threads", "1")


def with_defaults(options: Sequence[str]) -> tuple[str, ...]:
    """Of two options that say the same the later one counts."""
    return (*_DEFAULTS, *options)


def check_choices(options: Sequence[str], *, has_servers: bool, has_gpus: bool) -> None:
    """Raise UsageError where `worker serve` would refuse the options, or the fleet does.

    has_servers: the fleet starts RPC servers for the model; has_gpus: it gives it GPUs
    """
    try:
        said = ask_plan(tuple(options))
    except SaidError as error:
        raise UsageError(str(error)) from None
    for field in _OWN:
        if field in said.given:
            raise UsageError(f"{said.given[field]} is for the fleet to say.")
    for field in _TLS:
        if field in said.given:
            raise UsageError(
                f"{said.given[field]} has no place here, because gateways ask workers over HTTP: "
                "put a TLS proxy in front of the gateway."
            )
    asked = said.options
    if asked.fair_by == "connection":
        raise UsageError(
            "--fair-by connection would take all clients of the fleet for one: "
            "choose --fair-by user."
        )
    if asked.rpc and has_servers:
        raise UsageError("--rpc is for the fleet to say.")
    if asked.rpc and has_gpus:
        raise UsageError("--rpc and `gpus` exclude each other.")
    named = [name for name in asked.device if name.lower() != "none"]
    if named or (asked.device and has_gpus):
        raise UsageError("--device is for the fleet to say: `gpus` asks for some.")
    if asked.n_gpu_layers and not (has_gpus or has_servers or asked.rpc):
        raise UsageError("--n-gpu-layers needs `gpus`.")
