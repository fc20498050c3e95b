"""Settings of a process: the command line counts first, then the environment, then defaults.

`options.py` has the table of options. The parser, its help and the names of the environment
variables are made from that table.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from worker import limits
from worker.errors import UsageError
from worker.keys import KeyFile, keys_of
from worker.options import OPTIONS, Option
from worker.values import AUTO, AdapterSpec

DEFAULT_PARALLEL = 4
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SECRET = frozenset({"api_key", "callback_url", "heartbeat_url"})


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What this process was asked to do. `None` means: decided from the model and the machine.

    page             whether browsers get a page at /
    api_key_file     more keys
    cors             origins whose pages may read answers
    public_host      host in the address that a manager gets; None: `host`
    max_body         MiB of a request's body
    receive_timeout  seconds for a request's head, and again for its body
    send_timeout     seconds in which a client must take something of its answer
    inference_timeout, max_tokens_out  limits of a job; the OpenAI paths do not have them
    heartbeat_url    where heartbeats are sent; None: none are sent
    reasoning_format where an answer's thoughts stand: auto or deepseek: in a field of their own;
                     none: in the content
    reasoning_field  name of that field in chats
    chat_template    name or text of the chat template; None: the file's own
    chat_template_file   the text of one, before `chat_template`
    chat_template_kwargs variables of the template where a request does not name them
    lora             adapters of the model
    lora_init_without_apply  none of them counts for requests that choose nothing
    draft_model      file or name of a model that guesses tokens
    draft            who guesses: none, ngram, model, mtp or both; see `guesses`
    rpc              HOST:PORT of RPC servers whose devices are used too
    cache_ram        MiB of host memory for states of ended sequences, at most; 0: none are kept
    cache_dir        folder where these states are also written; None: nothing is written
    cache_disk       MiB that this folder may take for one model
    device           names (CUDA0), numbers, or kind:number (cuda:1); see `lifecycle/devices.py`
    otel             send a span of each request by OpenTelemetry
    sandbox          reach nothing but what a worker needs, see `isolation/reach.py`
    die_with_parent  "process": leave when the parent dies; "stdin": when standard input ends
    """

    model: str | None = None
    catalog: str | None = None
    model_ref: str | None = None
    alias: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    public_host: str | None = None
    local_mode: bool = False
    api_key: str | None = None
    api_key_file: KeyFile | None = None
    cors: tuple[str, ...] = ()
    worker_id: str | None = None
    callback_url: str | None = None
    heartbeat_url: str | None = None
    heartbeat_interval: float = 30.0
    die_with_parent: str = "off"
    sandbox: bool = False
    drain_timeout: float = 4.0
    page: bool = True
    ctx_size: int | None = None
    parallel: int | None = None
    queue_size: int = 64
    max_connections: int | None = None
    max_body: int = limits.BODY.most
    receive_timeout: float = limits.RECEIVE.most
    send_timeout: float = limits.SEND.most
    inference_timeout: float = 300.0
    max_tokens_out: int = 2048
    max_stall_ms: int = 400
    reasoning_format: str = "auto"
    reasoning_field: str = "reasoning_content"
    chat_template: str | None = None
    chat_template_file: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    lora: tuple[AdapterSpec, ...] = ()
    lora_init_without_apply: bool = False
    draft_model: str | None = None
    draft: str | None = None
    threads: int | None = None
    threads_batch: int | None = None
    batch_size: int = 512
    ubatch_size: int = 512
    n_gpu_layers: int | None = None
    backend: str | None = None
    rpc: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    tensor_split: tuple[float, ...] = ()
    split_mode: str = "layer"
    main_gpu: int = 0
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    cache_ram: int | None = None
    cache_dir: str | None = None
    cache_disk: int | None = None
    flash_attn: str = "auto"
    mmap: bool | None = None
    otel: bool = False
    log_format: str = "console"
    verbose: bool = False

    @property
    def slots(self) -> int:
        """Sequences decoded at once: `parallel`, or the default."""
        return self.parallel or DEFAULT_PARALLEL

    @property
    def connections(self) -> int:
        """How many there may be: those that wait for an answer leave the others their room."""
        most = limits.CONNECTIONS.most + self.slots + self.queue_size
        return self.max_connections or most

    @property
    def api_keys(self) -> tuple[str, ...]:
        """All keys that were given at the start; none: everybody may ask."""
        return keys_of(self.api_key, self.api_key_file)

    @property
    def guesses(self) -> str:
        """Who guesses tokens: `draft`, or the draft model where there is one."""
        return self.draft or ("none" if self.draft_model is None else "model")

    @property
    def uses_heads(self) -> bool:
        """Whether heads in the model's own file shall guess."""
        return self.guesses == "mtp" or (self.guesses == "both" and self.draft_model is None)

    @property
    def callback(self) -> str | None:
        """The address to call once the worker is ready, or None.

        Managers under test give port 9999 on localhost, where nobody answers: it is not called.
        """
        test = "localhost:9999" in (self.callback_url or "")
        return None if self.local_mode or test else self.callback_url

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The fields that may be shown: without the key, and addresses that could hold one."""
        return [(n, getattr(self, n)) for n in self.__struct_fields__ if n not in _SECRET]

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{n}={v!r}' for n, v in self.__rich_repr__())})"


def make(argv: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from parsed options (`None` = not given), then the environment, then defaults.

    Raises UsageError that names the variable when the environment holds an unusable value.
    """
    found: dict[str, Any] = {}
    for option in OPTIONS:
        if (given := argv.get(option.field)) is not None:
            found[option.field] = tuple(given) if option.many else given
        elif option.field not in found:
            for name in option.variables:
                if environ.get(name):
                    found[option.field] = _read_variable(option, name, environ[name])
                    break
    if found.get("ctx_size") == 0:  # llama-server's way to say "as the model was trained"
        del found["ctx_size"]
    if found.get("n_gpu_layers") == AUTO:
        del found["n_gpu_layers"]
    if found.get("cache_ram") == -1:  # llama-server's "no limit": as much as this machine can spare
        del found["cache_ram"]
    _forget_other_keys(argv, found)
    _check_keys(argv, environ)
    _check_cache(found)
    _check_draft(found)
    if found.get("local_mode"):
        if argv.get("host") not in (None, *LOOPBACK):
            raise UsageError(
                "--local-mode listens on 127.0.0.1, and --host says otherwise.",
                hint="Leave one of them out.",
            )
        found["host"] = "127.0.0.1"
    return Settings(**found)


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


def _check_draft(found: Mapping[str, Any]) -> None:
    """Raise UsageError where there is a draft model and nobody asks it, or the other way round."""
    draft, there = found.get("draft"), "draft_model" in found
    if draft == "model" and not there:
        raise UsageError(
            "--draft model needs a model that guesses.", hint="Add --draft-model FILE."
        )
    if there and draft not in (None, "model", "both"):
        raise UsageError(
            f"--draft {draft} does not use the draft model.", hint="Leave one of them out."
        )


def _read_variable(option: Option, name: str, text: str) -> Any:
    try:
        return option.read(text)
    except ValueError as error:
        raise UsageError(f"{name} {error}.", hint=f"Unset or correct {name}.") from None
