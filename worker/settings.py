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
from worker.options import OPTIONS, SAMPLING, TOPICS, Option
from worker.values import AUTO, AdapterSpec

DEFAULT_PARALLEL = 4
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SECRET = frozenset({"api_key", "callback_url", "heartbeat_url", "hf_token"})
# Fields whose AUTO means that they are left open.
_OPEN = ("n_gpu_layers", "threads", "threads_batch", "parallel", "seed", "reasoning_budget")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What this process was asked to do. `None` means: decided from the model and the machine.

    model            file or name
    hf_repo, hf_draft they were named as on the Hub, and are fetched where they are not here
    hf_file          file of `hf_repo`
    hf_token         for the Hub
    offline          nothing is fetched from the Hub
    alias            names of the model; the first one is its id
    tags             words about the model
    host             addresses, separated by commas
    api_prefix       beginning of paths that is taken off
    page             whether browsers get a page at /
    api_key_file     more keys
    cors             origins whose pages may read answers
    public_host      host in the address that a manager gets; None: `host`
    max_body         MiB of a request's body
    receive_timeout  seconds for a request's head, and again for its body
    send_timeout     seconds in which a client must take something of its answer
    inference_timeout, max_tokens_out  limits of a job; the OpenAI paths do not have them
    sleep_idle_seconds  without a request, after which the model's memory is given back; 0 or less:
                     it stays
    heartbeat_url    where heartbeats are sent; None: none are sent
    reasoning_format where an answer's thoughts stand: auto or deepseek: in a field of their own;
                     none: in the content
    reasoning_field  name of that field in chats
    reasoning, reasoning_effort, reasoning_budget  whether a model thinks (on, off, auto), how much,
                     and for how many tokens, where a request does not say so
    reasoning_budget_message  is written where a thought is cut off
    n_predict        tokens of an answer where a request does not say so; -1: no limit
    chat_template    name or text of the chat template; None: the file's own
    chat_template_file   the text of one, before `chat_template`
    chat_template_kwargs variables of the template where a request does not name them
    lora             adapters of the model
    control_vector   control vectors that are added, for all requests
    control_layers   first and last layer behind which they are; None: all
    lora_dir         folders from which more of them may be loaded while the worker serves
    lora_memory      MiB for these; None: as `memory/adapters.py` says
    lora_init_without_apply  none of them counts for requests that choose nothing
    draft_model      file or name of a model that guesses tokens
    draft            who guesses: auto, none, ngram, model, mtp or both; see `guesses`
    draft_max, ngram_max tokens of a guess, at most; of one from the text
    draft_p_min      least probability of a token that a draft model or heads guess
    cpu_moe          layers, the first ones, whose experts stay on the CPU; None: as few as fit
    override_tensor  expressions, and the device of the tensors that they match
    pooling          how vectors of texts are made, so that the worker gives some; None: as the file
                     says
    rpc              HOST:PORT of RPC servers whose devices are used too
    cache_ram        MiB of host memory for states of ended sequences, at most; 0: none are kept
    cache_dir        folder where these states are also written; None: nothing is written
    slot_save_path   folder of the files of /slots; None: there are none
    cache_disk       MiB that this folder may take for one model
    device           names (CUDA0), numbers, or kind:number (cuda:1); see `lifecycle/devices.py`
    override_kv      keys of the model's header, and what they are to say
    rope_scaling, rope_scale, rope_freq_base, yarn_orig_ctx  how positions are rotated; None: as
                     the file says
    otel             send a span of each request by OpenTelemetry
    sandbox          reach nothing but what a worker needs, see `isolation/reach.py`
    die_with_parent  "process": leave when the parent dies; "stdin": when standard input ends
    """

    model: str | None = None
    hf_repo: str | None = None
    hf_file: str | None = None
    hf_draft: str | None = None
    hf_token: str | None = None
    offline: bool = False
    catalog: str | None = None
    model_ref: str | None = None
    alias: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
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
    sleep_idle_seconds: float = -1.0
    page: bool = True
    api_prefix: str = ""
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
    reasoning: str = "auto"
    reasoning_effort: str | None = None
    reasoning_budget: int | None = None
    reasoning_budget_message: str = ""
    n_predict: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    top_n_sigma: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    adaptive_target: float | None = None
    adaptive_decay: float | None = None
    samplers: tuple[str, ...] | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    chat_template: str | None = None
    chat_template_file: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    lora: tuple[AdapterSpec, ...] = ()
    control_vector: tuple[AdapterSpec, ...] = ()
    control_layers: tuple[int, int] | None = None
    lora_dir: tuple[str, ...] = ()
    lora_memory: int | None = None
    lora_init_without_apply: bool = False
    draft_model: str | None = None
    draft: str | None = None
    pooling: str | None = None
    draft_max: int | None = None
    ngram_max: int | None = None
    draft_p_min: float = 0.0
    threads: int | None = None
    threads_batch: int | None = None
    batch_size: int = 512
    ubatch_size: int = 512
    n_gpu_layers: int | None = None
    cpu_moe: int | None = None
    override_tensor: tuple[tuple[str, str], ...] = ()
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
    slot_save_path: str | None = None
    cache_disk: int | None = None
    flash_attn: str = "auto"
    mmap: bool | None = None
    mlock: bool = False
    otel: bool = False
    override_kv: tuple[tuple[str, bool | int | float | str], ...] = ()
    rope_scaling: str | None = None
    rope_scale: float | None = None
    rope_freq_base: float | None = None
    yarn_orig_ctx: int | None = None
    yarn_ext_factor: float = -1.0
    yarn_attn_factor: float = -1.0
    yarn_beta_slow: float = -1.0
    yarn_beta_fast: float = -1.0
    log_format: str = "console"
    log_file: str | None = None
    verbose: bool = False

    @property
    def sampling(self) -> dict[str, Any]:
        """Fields of sampling, as requests call them, that count where a request does not say."""
        fields = {option.field for option in TOPICS[SAMPLING]}
        return {name: value for name in fields if (value := getattr(self, name)) is not None}

    @property
    def thinks(self) -> bool | None:
        """Whether a model thinks where a request does not say so; None: as its template does."""
        if self.reasoning == "auto":
            return None if self.reasoning_budget != 0 else False
        return self.reasoning == "on"

    @property
    def yarn(self) -> tuple[float, float, float, float]:
        """Extrapolation and attention factors, slow and fast beta; -1: as usual."""
        factors = self.yarn_ext_factor, self.yarn_attn_factor
        return (*factors, self.yarn_beta_slow, self.yarn_beta_fast)

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
        """Who guesses tokens."""
        return self.draft or "auto"

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
    _name_hub_model(argv, found)
    _forget_other_keys(argv, found)
    _check_keys(argv, environ)
    _check_cache(found)
    _check_adapters(found)
    _check_draft(found)
    if found.get("local_mode"):
        if not set((argv.get("host") or LOOPBACK[0]).split(",")) <= set(LOOPBACK):
            raise UsageError(
                "--local-mode listens on 127.0.0.1, and --host says otherwise.",
                hint="Leave one of them out.",
            )
        found["host"] = "127.0.0.1"
    return Settings(**found)


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


def _check_draft(found: Mapping[str, Any]) -> None:
    """Raise UsageError where there is a draft model and nobody asks it, or the other way round."""
    draft, there = found.get("draft"), "draft_model" in found
    if draft == "model" and not there:
        raise UsageError(
            "--draft model needs a model that guesses.", hint="Add --draft-model FILE."
        )
    if there and draft not in (None, "auto", "model", "both"):
        raise UsageError(
            f"--draft {draft} does not use the draft model.", hint="Leave one of them out."
        )


def _read_variable(option: Option, name: str, text: str) -> Any:
    try:
        return option.read(text)
    except ValueError as error:
        raise UsageError(f"{name} {error}.", hint=f"Unset or correct {name}.") from None
