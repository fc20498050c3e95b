"""The options of Settings as arguments of argparse, and the settings that they and the environment
make."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from worker.errors import UsageError
from worker.settings import OPTIONS, Option, Settings
from worker.values import AUTO, UNIX

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
# What the help says of all options of a topic.
_ABOUT = {"Generation": "Defaults: a request that sets a field of its own wins."}
# Fields whose AUTO means that they are left open.
_OPEN = ("n_gpu_layers", "threads", "threads_batch", "parallel", "seed", "reasoning_budget")


def add_options(parser: argparse.ArgumentParser, *fields: str) -> None:
    """Add the options of the named fields, or all options where none is named, by topic."""
    wanted = (option for option in OPTIONS if not fields or option.field in fields)
    for topic, options in groupby(wanted, lambda option: option.topic):
        group = parser.add_argument_group(topic, _ABOUT.get(topic))
        for option in options:
            _add(group, option)


def _add(group: Any, option: Option) -> None:
    extra: dict[str, Any] = {}
    if option.const is not None:
        extra = {"nargs": "?", "const": option.const}
    if option.repeats:
        extra["action"] = "extend"
    metavar: Any = option.metavar
    if " " in metavar:
        metavar = tuple(metavar.split())
        extra |= {"nargs": len(metavar), "action": _Together}
        extra["const"] = option.read
    group.add_argument(
        *option.flags,
        dest=option.field,
        type=reader(option.read) if metavar == option.metavar else str,
        metavar=metavar,
        help=option.help.replace("%", "%%"),
        **extra,
    )


class _Together(argparse.Action):
    """Reads several words, with spaces between them, by its `const`."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,  # noqa: ARG002
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:  # fmt: skip
        try:
            setattr(namespace, self.dest, self.const(" ".join(values)))
        except ValueError as error:
            raise argparse.ArgumentError(self, str(error)) from None


def reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """The same as an argument's type: argparse hides the text of a ValueError."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def environment_help() -> str:
    extra = [name for option in OPTIONS for name in option.variables[1:]]
    return (
        "Each option can also be set as LLAMA_ARG_<NAME> in the environment, for example "
        f"LLAMA_ARG_CTX_SIZE=4096 (also: {', '.join(extra)}). The command line wins."
    )


def settings_from(
    arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> Settings:
    """The settings: the command line counts first, then the environment, then defaults.

    Raises UsageError that names the variable when the environment holds an unusable value.
    """
    argv, found = vars(arguments), dict[str, Any]()
    for option in OPTIONS:
        if argv.get(option.field) is not None:
            given = argv[option.field]
            found[option.field] = tuple(given) if option.repeats else given
        elif option.field not in found:
            for name in option.variables:
                if environ.get(name):
                    found[option.field] = _read_variable(option, name, environ[name])
                    break
    if found.get("ctx_size") == 0:  # llama-server's way to say "as the model was trained"
        del found["ctx_size"]
    for field in _OPEN:
        if found.get(field) == AUTO:
            del found[field]
    if found.get("cache_ram") == -1:  # llama-server's "no limit": as much as this machine can spare
        del found["cache_ram"]
    _name_model(argv, found)
    _name_hub_model(argv, found)
    _forget_other_keys(argv, found)
    _check_keys(argv, environ)
    _check_cache(found)
    _check_batches(found)
    _check_relay(found)
    _check_adapters(found)
    _check_draft(found)
    _check_form(found)
    if (found.get("ssl_cert_file") is None) != (found.get("ssl_key_file") is None):
        raise UsageError(
            "HTTPS needs both --ssl-cert-file and --ssl-key-file.", hint="Add the missing one."
        )
    if found.get("local_mode"):
        hosts = (argv.get("host") or _LOOPBACK[0]).split(",")
        sockets = [host for host in hosts if host.startswith(UNIX)]
        if not set(hosts) <= {*_LOOPBACK, *sockets}:
            raise UsageError(
                "--local-mode listens on 127.0.0.1, and --host says otherwise.",
                hint="Leave one of them out.",
            )
        found["host"] = ",".join(
            dict.fromkeys(host if host in sockets else _LOOPBACK[0] for host in hosts)
        )
    return Settings(**found)


def _name_model(argv: Mapping[str, Any], found: dict[str, Any]) -> None:
    """What stands on the command line without an option, as `model`. Raises UsageError."""
    named = argv.get("named")
    if named is None:
        return
    if any(argv.get(name) is not None for name in ("model", "hf_repo", "hf_file")):
        raise UsageError(
            f"Two models are named: {named!r} and the one of --model or --hf-repo.",
            hint="Leave one of them out.",
        )
    found["model"] = named
    for theirs in ("hf_repo", "hf_file"):
        found.pop(theirs, None)


def _name_hub_model(argv: Mapping[str, Any], found: dict[str, Any]) -> None:
    """What llama-server's names for models of the Hub mean, as `model` and `draft_model`.

    The command line counts before the environment. Raises UsageError where both name a model.
    """
    for ours, theirs, flags in (
        ("model", "hf_repo", "--model and --hf-repo"),
        ("draft_model", "hf_draft", "--draft-model and --hf-repo-draft"),
    ):
        if ours in found and theirs in found:
            if (argv.get(ours) is None) == (argv.get(theirs) is None):
                raise UsageError(f"{flags} name two models.", hint="Leave one of them out.")
            del found[ours if argv.get(ours) is None else theirs]
        if theirs in found:
            found[ours] = f"hf:{found[theirs]}"
    if "hf_file" in found:
        if "hf_repo" not in found:
            raise UsageError("--hf-file is a file of --hf-repo.", hint="Name the repository too.")
        found["model"] = f"hf:{found['hf_repo'].partition(':')[0]}::file={found['hf_file']}"


def _forget_other_keys(argv: Mapping[str, Any], found: dict[str, Any]) -> None:
    """Where the command line names keys in one way, the environment names none in the other."""
    ways = ("api_key", "api_key_file")
    named = [way for way in ways if argv.get(way) is not None]
    for way in ways:
        if named and way not in named:
            found.pop(way, None)


def _check_keys(argv: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """A key that did not arrive must not open the worker to everybody."""
    ways = ("api_key", "api_key_file")
    if any(argv.get(way) is not None for way in ways):
        return
    for name in (name for o in OPTIONS if o.field in ways for name in o.variables):
        if environ.get(name) == "":
            raise UsageError(f"{name} is set, and empty.", hint="Unset it, or give it a key.")


def _check_relay(found: Mapping[str, Any]) -> None:
    """Raise UsageError if anybody could say whose a request is."""
    if found.get("trust_account") and not {"api_key", "api_key_file"} & found.keys():
        raise UsageError(
            "--trust-account believes whoever sends a key, and there is none.",
            hint="Add --api-key-file FILE with the relay's key, or leave it out.",
        )


def _check_cache(found: Mapping[str, Any]) -> None:
    """Raise UsageError for options of the cache that contradict each other."""
    if "cache_disk" in found and "cache_dir" not in found:
        raise UsageError(
            "--cache-disk is the size of a folder, and no --cache-dir names one.",
            hint="Add --cache-dir DIR, or leave --cache-disk out.",
        )
    if "cache_dir" in found and found.get("cache_ram") == 0:
        raise UsageError(
            "--cache-dir is where kept states are written, and with --cache-ram 0 none are kept.",
            hint="Leave one of them out.",
        )


def _check_batches(found: Mapping[str, Any]) -> None:
    """Raise UsageError for limits of batches where there are none."""
    for field in ("batch_lines", "batch_file", "batch_files", "keep_days"):
        if field in found and "state_dir" not in found:
            raise UsageError(
                f"--{field.replace('_', '-')} is a limit of batches, and no --state-dir keeps any.",
                hint="Add --state-dir DIR, or leave it out.",
            )


def _check_adapters(found: Mapping[str, Any]) -> None:
    """Raise UsageError for room that nothing can take, and for layers to which nothing is added."""
    if "lora_memory" in found and "lora_dir" not in found:
        raise UsageError(
            "--lora-memory is for adapters that are loaded later, and no --lora-dir says whence.",
            hint="Add --lora-dir DIR, or leave --lora-memory out.",
        )
    if "control_layers" in found and "control_vector" not in found:
        raise UsageError(
            "--control-vector-layer-range is for control vectors, and there are none.",
            hint="Add --control-vector FILE, or leave it out.",
        )


def _check_form(found: Mapping[str, Any]) -> None:
    """Raise UsageError where answers cannot have both forms."""
    if found.get("grammar") is not None and found.get("json_schema") is not None:
        raise UsageError(
            "--grammar and --json-schema ask for different answers.",
            hint="Leave one of them out.",
        )


def _check_draft(found: Mapping[str, Any]) -> None:
    """Raise UsageError where there is a draft model and nobody asks it, or the other way round."""
    draft, there = found.get("draft"), "draft_model" in found
    if draft == "model" and not there:
        raise UsageError("--draft model needs a draft model.", hint="Add --draft-model FILE.")
    if there and draft in ("none", "ngram"):
        raise UsageError(
            f"--draft {draft} does not use the draft model.", hint="Leave one of them out."
        )


def _read_variable(option: Option, name: str, text: str) -> Any:
    try:
        return option.read(text)
    except ValueError as error:
        raise UsageError(f"{name} {error}.", hint=f"Unset or correct {name}.") from None
