"""Settings of a process, each with the options that set it: flags, variables, help.

`values.py` reads their texts, and `cli/options.py` makes the parser, its help and the settings.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec

from worker import keys, limits, values
from worker.keys import KeyFile
from worker.values import AdapterSpec

DEFAULT_PARALLEL = 4
SAMPLING = "Sampling, where a request does not say otherwise"
_BACKENDS = ("cpu", "cuda", "metal", "vulkan", "rpc")
_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
_INT32 = 2**31 - 1
_SECRET = frozenset({"api_key", "callback_url", "heartbeat_url", "hf_token"})


class Option(msgspec.Struct, frozen=True):
    """One way to set a field of Settings: its flags, how its text is read, and its help.

    words    the flags, separated by spaces
    metavar  what the help calls the value
    env      environment variables besides LLAMA_ARG_<the first flag>
    const    the value when the flag stands alone; None: it needs one
    repeats  each time that the flag is given adds to the values
    topic    where the help has it; at a field: with those that follow, until another one
    field    that it is written at
    """

    words: str
    read: Callable[[str], Any]
    help: str
    metavar: str = "N"
    env: str = ""
    const: Any = None
    repeats: bool = False
    topic: str = ""
    field: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        """As the command line has them; the first one is the option's name."""
        return tuple(self.words.split())

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables that set it; the first one that is set counts."""
        name = self.flags[0].lstrip("-").replace("-", "_").upper()
        return (f"LLAMA_ARG_{name}", *self.env.split())


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What this process was asked to do. `None` means: decided from the model and the machine."""

    # fmt: off
    model: Annotated[str | None, Option("--model -m", values.nonempty,
        "GGUF file, or a model's name: tinyllama:Q4_K_M (default: the embedded demo model)", "FILE",
        topic="Model")] = None
    catalog: Annotated[str | None, Option("--catalog", values.nonempty,
        "your own list of models, of the form of models.toml", "FILE",
        env="GGUF_WORKER_MODELS")] = None
    hf_repo: Annotated[str | None, Option("--hf-repo -hf -hfr", values.repository,
        "model of the Hub, which is fetched where it is not here: ORGANISATION/REPOSITORY[:QUANT] "
        "(Q4_K_M where there is one)", "REPO")] = None
    hf_file: Annotated[str | None, Option("--hf-file -hff", values.nonempty,
        "file of that repository, in the place of an encoding", "FILE")] = None
    hf_token: Annotated[str | None, Option("--hf-token -hft", keys.key,
        "token for the Hub; better the variable HF_TOKEN, which process lists do not show",
        "TOKEN")] = None
    offline: Annotated[bool, Option("--offline", values.switch, "fetch nothing from the Hub (off)",
        "on|off", const=True, env="HF_HUB_OFFLINE")] = False
    alias: Annotated[tuple[str, ...], Option("--alias -a --served-model-name", values.some_names,
        "model id in /v1/models, and other names of it (the file's name)", "NAME,...")] = ()
    tags: Annotated[tuple[str, ...], Option("--tags", values.some_names,
        "words about it, told there", "WORD,...")] = ()
    model_ref: Annotated[str | None, Option("--model-ref", values.name,
        "the manager's name for the model, reported back", "REF")] = None

    host: Annotated[str, Option("--host", values.hosts, "addresses to listen on (127.0.0.1)",
        "ADDR,...", topic="Service")] = "127.0.0.1"
    port: Annotated[int, Option("--port", values.integer(0, 65535),
        "port to listen on; 0 takes a free one (8080)")] = 8080
    api_key: Annotated[str | None, Option("--api-key", keys.keys,
        "bearer key that all paths but /health ask for, or several, separated by commas; process "
        "lists show it until the worker has overwritten it: better a file or a variable", "KEY",
        env="LLAMA_API_KEY LLORCH_API_TOKEN")] = None
    api_key_file: Annotated[KeyFile | None, Option("--api-key-file", keys.key_file,
        "file of such keys, one a line, # begins a comment; read again at SIGHUP", "FILE")] = None
    cors: Annotated[tuple[str, ...], Option("--cors --cors-origins", values.origins,
        "pages of these origins, such as https://chat.example, may read answers; localhost: those "
        "of this machine, *: all (none)", "A,B")] = ()
    api_prefix: Annotated[str, Option("--api-prefix", values.prefix,
        "beginning of a path behind which all paths are found too (none)", "/PATH")] = ""
    sandbox: Annotated[bool, Option("--sandbox", values.switch,
        "open nothing but what a worker needs, start no program, connect to the manager's port "
        "alone: by Landlock, from Linux 6.7 on, without a GPU (off)", "on|off", const=True)] = False
    queue_size: Annotated[int, Option("--queue-size", values.integer(0, 100_000),
        "requests that may wait (64)")] = 64
    max_connections: Annotated[int | None, Option("--max-connections", values.integer(1, 1_000_000),
        f"connections at once ({limits.CONNECTIONS.most} and one for each request that may run or "
        "wait)")] = None
    max_body: Annotated[int, Option("--max-body", values.integer(1, 1024),
        f"MiB of a request's body ({limits.BODY.most})", "MIB")] = limits.BODY.most
    receive_timeout: Annotated[float, Option("--receive-timeout", values.number(0.1, 86_400),
        f"seconds for a request's head to arrive, and again for its body ({limits.RECEIVE.most})",
        "SECONDS")] = limits.RECEIVE.most
    send_timeout: Annotated[float, Option("--send-timeout", values.number(0.1, 86_400),
        "seconds after which a client that takes nothing of its answer is let go "
        f"({limits.SEND.most})", "SECONDS")] = limits.SEND.most
    drain_timeout: Annotated[float, Option("--drain-timeout", values.number(0, 3600),
        "seconds running requests get at SIGTERM (4)", "SECONDS")] = 4.0
    sleep_idle_seconds: Annotated[float, Option("--sleep-idle-seconds", values.number(-1, 10**9),
        "seconds without a request after which the model's memory is given back until the next one "
        "(-1: never)", "SECONDS")] = -1.0
    wake_attempts: Annotated[int, Option("--wake-attempts", values.integer(0, 10**9),
        "loads in a row that may fail when a sleeping model wakes, before the worker exits "
        "(0: it stays, and each request tries again)", "N")] = 0
    page: Annotated[bool, Option("--page --webui --ui", values.switch,
        "show browsers a page at / (on); it asks for the key like every client", "on|off",
        const=True, env="LLAMA_ARG_UI LLAMA_ARG_WEBUI"),
        Option("--no-page --no-webui --no-ui", values.opposite, "the opposite", "on|off",
        const=False)] = True

    worker_id: Annotated[str | None, Option("--worker-id", values.name,
        "the manager's id for this worker (a new UUID)", "ID", topic="Pool manager")] = None
    callback_url: Annotated[str | None, Option("--callback-url", values.address,
        "POSTed once when ready; exit code 5 when refused", "URL")] = None
    heartbeat_url: Annotated[str | None, Option("--heartbeat-url", values.address,
        "POSTed at every heartbeat", "URL"),
        Option("--hive-url --queen-url", values.heartbeat_base,
        "the same, given the manager's own address: " + values.HEARTBEAT_PATH + " is added",
        "URL")] = None
    heartbeat_interval: Annotated[float, Option("--heartbeat-interval", values.number(0.1, 86_400),
        "seconds between heartbeats (30)", "SECONDS")] = 30.0
    public_host: Annotated[str | None, Option("--public-host", values.host,
        "host in the address that the manager is told (as --host)", "NAME",
        env="RBEE_WORKER_HOST")] = None
    local_mode: Annotated[bool, Option("--local-mode", values.switch,
        "listen on loopback only and call no manager back (off)", "on|off", const=True)] = False
    die_with_parent: Annotated[str, Option("--die-with-parent", values.parent,
        "leave when the parent process dies or, with stdin, when standard input ends (off)",
        "process|stdin", const="process")] = "off"

    ctx_size: Annotated[int | None, Option("--ctx-size -c --n-ctx --max-model-len",
        values.integer(0, _INT32),
        "KV cells in all, shared by all sequences, rounded up to a multiple of 256 (fitted to "
        "model and memory)", topic="Work")] = None
    parallel: Annotated[int | None, Option("--parallel -np --max-num-seqs",
        values.integer_or_auto(1, 256),
        "sequences decoded at once (-1: 4, fewer where memory is short)",
        env="LLAMA_ARG_N_PARALLEL")] = None
    inference_timeout: Annotated[float, Option("--inference-timeout-sec --inference-timeout",
        values.number(0.1, 86_400), "seconds that a job may take (300)", "SECONDS")] = 300.0
    max_tokens_out: Annotated[int, Option("--max-tokens-out", values.integer(1, _INT32),
        "tokens that a job may ask for (2048)")] = 2048
    max_stall_ms: Annotated[int, Option("--max-stall-ms", values.integer(1, 60_000),
        "milliseconds that reading a prompt may make running streams wait (400)")] = 400
    n_predict: Annotated[int | None, Option("--predict --n-predict -n", values.num_predicted,
        "tokens of an answer, at most, where a request does not say; -1: no limit (16 for "
        "/v1/completions, else no limit)", env="LLAMA_ARG_N_PREDICT")] = None
    threads: Annotated[int | None, Option("--threads -t", values.integer_or_auto(1, 4096),
        "compute threads (-1: as many as are fastest, at most the CPUs this process may "
        "use)")] = None
    threads_batch: Annotated[int | None, Option("--threads-batch -tb",
        values.integer_or_auto(1, 4096), "compute threads for prompts (-1: as --threads)")] = None
    batch_size: Annotated[int, Option("--batch-size -b", values.integer(1, 65536),
        "tokens in a step, at most (512)", env="LLAMA_ARG_BATCH")] = 512
    ubatch_size: Annotated[int, Option("--ubatch-size -ub", values.integer(1, 65536),
        "tokens computed at once inside a step (512)", env="LLAMA_ARG_UBATCH")] = 512

    reasoning_format: Annotated[str, Option("--reasoning-format",
        values.one_of("auto", "deepseek", "none"),
        "where a model's thoughts go: into a field of their own (auto, deepseek), or unparsed into "
        "the content (none); a request may say otherwise (auto)", "auto|deepseek|none",
        env="LLAMA_ARG_THINK", topic="Chats")] = "auto"
    reasoning_field: Annotated[str, Option("--reasoning-field",
        values.one_of("reasoning_content", "reasoning"),
        "that field's name in chat answers; both are read in messages (reasoning_content)",
        "NAME")] = "reasoning_content"
    lora: Annotated[tuple[AdapterSpec, ...], Option("--lora", values.adapters,
        "adapter of the model, or several: a request whose model is NAME is answered with it, "
        "scaled by SCALE (1); one without NAME is called like its file and counts for all requests "
        "that choose nothing (none)", "FILE[=NAME[:SCALE]]", repeats=True),
        Option("--lora-scaled", values.scaled_adapters,
        "the same for all requests that choose nothing, with its scale", "FILE:SCALE",
        repeats=True)] = ()
    mmproj: Annotated[str | None, Option("--mmproj -mm", values.nonempty,
        "projector that makes vectors of pictures and sounds (the one beside the model that has "
        "its name)", "FILE")] = None
    mmproj_auto: Annotated[bool, Option("--mmproj-auto", values.switch,
        "look for one beside the model (on)", "on|off", const=True),
        Option("--no-mmproj --no-mmproj-auto", values.opposite, "the opposite", "on|off",
        const=False)] = True
    mmproj_offload: Annotated[bool, Option("--mmproj-offload", values.switch,
        "the projector goes to a GPU too, where the model's layers do (on)", "on|off", const=True),
        Option("--no-mmproj-offload", values.opposite, "the opposite", "on|off",
        const=False)] = True
    fetch_images: Annotated[tuple[tuple[str, int], ...], Option("--fetch-images", values.sources,
        "hosts from which pictures and sounds are fetched that a request names by http:// or "
        "https://; names must lead to public addresses, another one is named as its number (none)",
        "HOST[:PORT],...", repeats=True)] = ()
    media_dir: Annotated[str | None, Option("--media-dir --media-path", values.media_folder,
        "folder of the files that a request may name by file:// (none)", "DIR")] = None
    lora_dir: Annotated[tuple[str, ...], Option("--lora-dir", values.there,
        "folder from whose files /v1/load_lora_adapter may load adapters while the worker serves, "
        "and /v1/unload_lora_adapter unloads them (none: neither does)", "DIR", repeats=True)] = ()
    lora_memory: Annotated[int | None, Option("--lora-memory", values.integer(1, _INT32),
        "MiB for adapters that are loaded so (256)", "MIB")] = None
    lora_init_without_apply: Annotated[bool, Option("--lora-init-without-apply", values.switch,
        "no adapter counts for requests that choose nothing, until /lora-adapters is told so (off)",
        "on|off", const=True)] = False
    control_vector: Annotated[tuple[AdapterSpec, ...], Option("--control-vector", values.vectors,
        "control vector, or several: added for all requests (none)", "FILE", repeats=True),
        Option("--control-vector-scaled", values.scaled_adapters, "the same with its scale",
        "FILE:SCALE", repeats=True)] = ()
    control_layers: Annotated[tuple[int, int] | None, Option("--control-vector-layer-range",
        values.layer_range, "layers behind which it is added, from 1 (all)", "START END")] = None
    reasoning: Annotated[str, Option("--reasoning -rea", values.one_of("on", "off", "auto"),
        "whether a model that can think does so where a request does not say; auto: as its "
        "template has it (auto)", "on|off|auto")] = "auto"
    reasoning_effort: Annotated[str | None, Option("--reasoning-effort", values.nonempty,
        "how much it thinks then, in the template's word, such as low (the template's own)",
        "WORD")] = None
    reasoning_budget: Annotated[int | None, Option("--reasoning-budget",
        values.integer_or_auto(0, _INT32),
        "tokens that it thinks then, at most; 0: it does not think (-1: no limit)",
        env="LLAMA_ARG_THINK_BUDGET")] = None
    reasoning_budget_message: Annotated[str, Option("--reasoning-budget-message", values.nonempty,
        "what is written at the end of a thought that is cut off (nothing)", "TEXT",
        env="LLAMA_ARG_THINK_BUDGET_MESSAGE")] = ""
    chat_template: Annotated[str | None, Option("--chat-template", values.nonempty,
        "chat template: the name of one of the file's, chatml, llama3, phi3, zephyr, gemma, or "
        "Jinja (the file's own)", "NAME")] = None
    chat_template_file: Annotated[str | None, Option("--chat-template-file", values.text_file,
        "file that holds the chat template; it counts before --chat-template", "FILE")] = None
    chat_template_kwargs: Annotated[dict[str, Any] | None, Option("--chat-template-kwargs",
        values.json_object,
        "variables of the chat template where a request does not name them, such as "
        "'{\"enable_thinking\": false}' (none)", "JSON", env="LLAMA_CHAT_TEMPLATE_KWARGS")] = None

    draft_model: Annotated[str | None, Option("--draft-model --model-draft -md --spec-draft-model",
        values.nonempty,
        "smaller model of the same vocabulary, a file or a name, that guesses tokens (none)",
        "FILE", env="LLAMA_ARG_SPEC_DRAFT_MODEL", topic="Guessed tokens")] = None
    hf_draft: Annotated[str | None, Option("--hf-repo-draft -hfd -hfrd --spec-draft-hf",
        values.repository, "the same of the Hub, as --hf-repo", "REPO")] = None
    draft: Annotated[str | None, Option("--draft",
        values.one_of("auto", "none", "ngram", "model", "mtp", "both"),
        "who guesses tokens, which are verified in the same step: ngram, the text itself; the "
        "draft model; mtp, the file's own heads; auto, all that there is and what the worker read "
        "and wrote lately; both, the same, with model or heads (auto)",
        "auto|none|ngram|model|mtp|both"),
        Option("--spec-type", values.speculation,
        "the same in llama-server's words: none, ngram-mod, draft-simple, draft-mtp", "TYPE"),
        Option("--spec-default", values.switch_to("ngram", "none"), "the same as --draft ngram",
        "on|off", const="on")] = None
    draft_max: Annotated[int | None, Option("--draft-max --draft-n --spec-draft-n-max",
        values.integer(1, 1024), "tokens of a guess, at most (as many as pay)")] = None
    ngram_max: Annotated[int | None, Option("--spec-ngram-mod-n-max --spec-ngram-simple-size-m "
        "--spec-ngram-map-k-size-m --spec-ngram-map-k4v-size-m",
        values.integer(1, 1024), "the same where the text itself guesses (as --draft-max)")] = None
    draft_p_min: Annotated[float, Option("--draft-p-min --spec-draft-p-min", values.number(0, 1),
        "a guess ends where the draft model or the heads give a token less (0)", "P")] = 0.0
    pooling: Annotated[str | None, Option("--pooling",
        values.one_of("none", "mean", "cls", "last", "rank"),
        "make vectors of texts too: one for each token, their mean, the first or the last one's, "
        "or a classifier's score (embedding models as their file says, others make none)",
        "none|mean|cls|last|rank"),
        Option("--rerank --reranking", values.switch_to("rank", None), "the same as --pooling rank",
        "on|off", const="on")] = None

    temperature: Annotated[float | None, Option("--temp --temperature", values.number(0, 100),
        "0 is greedy (1)", env="LLAMA_ARG_TEMPERATURE", topic=SAMPLING)] = None
    top_k: Annotated[int | None, Option("--top-k", values.integer(-1, _INT32),
        "keep the k likeliest tokens; 0 keeps all (0)")] = None
    top_p: Annotated[float | None, Option("--top-p", values.number(0, 1),
        "keep the likeliest with this much probability (1)")] = None
    min_p: Annotated[float | None, Option("--min-p", values.number(0, 1),
        "keep what has this share of the likeliest's probability (0)")] = None
    typical_p: Annotated[float | None, Option("--typical --typical-p", values.number(0, 1),
        "keep the locally typical set with this much probability (1)")] = None
    repeat_penalty: Annotated[float | None, Option("--repeat-penalty", values.number(1e-3, 100),
        "above 1 repeats less (1)")] = None
    repeat_last_n: Annotated[int | None, Option("--repeat-last-n", values.integer(-1, _INT32),
        "last tokens that it looks at; -1: all (64)")] = None
    presence_penalty: Annotated[float | None, Option("--presence-penalty", values.number(-100, 100),
        "taken from each token that the answer has (0)")] = None
    frequency_penalty: Annotated[float | None, Option("--frequency-penalty",
        values.number(-100, 100), "the same for each time that it has it (0)")] = None
    dry_multiplier: Annotated[float | None, Option("--dry-multiplier", values.number(0, 100),
        "DRY; 0 is off (0)")] = None
    dry_base: Annotated[float | None, Option("--dry-base", values.number(1, 100),
        "how fast it grows with a repetition's length (1.75)")] = None
    dry_allowed_length: Annotated[int | None, Option("--dry-allowed-length",
        values.integer(0, _INT32), "repetitions up to this length cost nothing (2)")] = None
    dry_penalty_last_n: Annotated[int | None, Option("--dry-penalty-last-n",
        values.integer(-1, _INT32), "last tokens that it looks at; -1: all (-1)")] = None
    xtc_probability: Annotated[float | None, Option("--xtc-probability", values.number(0, 1),
        "XTC: how often the likeliest tokens are left out (0)")] = None
    xtc_threshold: Annotated[float | None, Option("--xtc-threshold", values.number(0, 1),
        "where a less likely one has this much probability (0.1)")] = None
    mirostat: Annotated[int | None, Option("--mirostat", values.integer(0, 2),
        "Mirostat's version; 0 is off (0)")] = None
    mirostat_tau: Annotated[float | None, Option("--mirostat-ent", values.number(0, 100),
        "the surprise that it aims at (5)")] = None
    mirostat_eta: Annotated[float | None, Option("--mirostat-lr", values.number(0, 1),
        "how fast (0.1)")] = None
    top_n_sigma: Annotated[float | None, Option("--top-n-sigma --top-nsigma",
        values.number(-1, 100),
        "keep what is so many standard deviations below the largest logit; -1: all (-1)")] = None
    dynatemp_range: Annotated[float | None, Option("--dynatemp-range", values.number(0, 100),
        "the temperature changes by so much with how sure the model is (0)")] = None
    dynatemp_exponent: Annotated[float | None, Option("--dynatemp-exp", values.number(0, 100),
        "how fast (1)")] = None
    adaptive_target: Annotated[float | None, Option("--adaptive-target", values.number(-1, 1),
        "choose tokens of about this probability; below 0 is off (-1)")] = None
    adaptive_decay: Annotated[float | None, Option("--adaptive-decay", values.number(0, 1),
        "how long what was chosen counts (0.9)")] = None
    samplers: Annotated[tuple[str, ...] | None, Option("--samplers", values.samplers,
        "those that are used, in this order (penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;"
        "temperature;adaptive_p; also infill)", "A;B"),
        Option("--sampling-seq --sampler-seq", values.samplers,
        "the same, a letter each: edskypmxta", "LETTERS")] = None
    seed: Annotated[int | None, Option("--seed -s", values.integer_or_auto(0, 2**32 - 1),
        "the same seed gives the same text (-1: a random one for each request)")] = None
    ignore_eos: Annotated[bool | None, Option("--ignore-eos", values.switch,
        "go on after an end of generation (off)", "on|off", const="on")] = None

    backend: Annotated[str | None, Option("--backend", values.one_of(*_BACKENDS),
        "refuse to run on anything else", "NAME", topic="Devices and memory")] = None
    n_gpu_layers: Annotated[int | None, Option("--n-gpu-layers --gpu-layers -ngl", values.layers,
        "layers to offload: a number, all, or auto (as many as fit the GPU)")] = None
    device: Annotated[tuple[str, ...], Option("--device -dev", values.names,
        "devices to use: names as `worker version` shows them, numbers, or kind:number", "A,B"),
        Option("--cuda-device", values.nth("cuda"), "the CUDA device of that number"),
        Option("--metal-device", values.nth("metal"), "the Metal device of that number"),
        Option("--gpu-device", values.nth("gpu"), "the GPU of that number, of any kind")] = ()
    rpc: Annotated[tuple[str, ...], Option("--rpc", values.servers,
        "llama.cpp RPC servers whose devices are used too; they know no key and no encryption and "
        "trust whoever reaches them: loopback or a closed net only", "HOST:PORT,...")] = ()
    cpu_moe: Annotated[int | None, Option("--n-cpu-moe -ncmoe", values.integer(0, 10_000),
        "of so many layers, the first ones, the experts stay on the CPU (as few as fit the GPU)"),
        Option("--cpu-moe -cmoe", values.every_layer, "of all", "on|off", const="on")] = None
    override_tensor: Annotated[tuple[tuple[str, str], ...], Option("--override-tensor -ot",
        values.placements, "device of the tensors whose names an expression matches, of whatever "
        "layer; the first that matches counts", "REGEX=DEVICE,...")] = ()
    tensor_split: Annotated[tuple[float, ...], Option("--tensor-split -ts", values.shares,
        "share of each device", "S,S")] = ()
    split_mode: Annotated[str, Option("--split-mode -sm", values.one_of("none", "layer", "row"),
        "how to split over devices (layer)", "MODE")] = "layer"
    main_gpu: Annotated[int, Option("--main-gpu -mg", values.integer(0, 255),
        "the device for split mode none")] = 0
    cache_type_k: Annotated[str, Option("--cache-type-k -ctk", values.one_of(*_CACHE_TYPES),
        "type of K (f16)", "TYPE")] = "f16"
    cache_type_v: Annotated[str, Option("--cache-type-v -ctv", values.one_of(*_CACHE_TYPES),
        "type of V (f16)", "TYPE")] = "f16"
    cache_ram: Annotated[int | None, Option("--cache-ram -cram", values.integer(-1, _INT32),
        "MiB of host memory for the states of ended conversations; 0 keeps none (-1: fitted to "
        "what the machine has left)", "MIB")] = None
    cache_dir: Annotated[str | None, Option("--cache-dir", values.folder,
        "folder where they are also written, so that a worker that starts again finds them; as "
        "private as the prompts (none: nothing is written)", "DIR")] = None
    slot_save_path: Annotated[str | None, Option("--slot-save-path", values.folder,
        "folder for the states that POST /slots/N?action=save writes; as private as the prompts "
        "(none)", "DIR")] = None
    cache_disk: Annotated[int | None, Option("--cache-disk", values.integer(1, _INT32),
        "MiB for all models in it (8192, or half of the room on its disk)", "MIB")] = None
    flash_attn: Annotated[str, Option("--flash-attn -fa", values.one_of("on", "off", "auto"),
        "attention kernel: on, off, or auto, which on a CPU is chosen while it works (auto)",
        "MODE", const="on")] = "auto"
    mmap: Annotated[bool | None, Option("--mmap", values.switch,
        "map the file instead of reading it, which starts sooner (on without a GPU); who "
        "overwrites a mapped file in place kills the worker", "on|off", const=True),
        Option("--no-mmap", values.opposite, "the opposite", "on|off", const=False),
        Option("--load-mode -lm", values.load_mode,
        "the same in llama-server's words: none, dio, auto or mmap", "MODE")] = None
    mlock: Annotated[bool, Option("--mlock", values.switch,
        "keep the weights in memory, as far as the system's limit for that allows (off)", "on|off",
        const=True)] = False

    override_kv: Annotated[tuple[tuple[str, bool | int | float | str], ...], Option("--override-kv",
        values.overrides,
        "what keys of the file shall say, where llama.cpp and the worker read them; may be given "
        "several times", "KEY=TYPE:VALUE", repeats=True, topic="Other than the file says")] = ()
    rope_scaling: Annotated[str | None, Option("--rope-scaling",
        values.one_of("none", "linear", "yarn"),
        "how a context longer than the trained one is read (as the file says)", "none|linear|yarn",
        env="LLAMA_ARG_ROPE_SCALING_TYPE")] = None
    rope_scale: Annotated[float | None, Option("--rope-scale", values.number(1e-3, 1e3),
        "how many times longer than the original it may be (as the file says)", "X"),
        Option("--rope-freq-scale", values.inverse(1e-3, 1e3), "the same as 1 / --rope-scale",
        "X")] = None
    rope_freq_base: Annotated[float | None, Option("--rope-freq-base", values.number(1, 1e12),
        "base of the frequencies; the context may then be as long as --ctx-size (as the file says)",
        "X")] = None
    yarn_orig_ctx: Annotated[int | None, Option("--yarn-orig-ctx", values.integer(1, _INT32),
        "tokens of the original context (as the file says)")] = None
    yarn_ext_factor: Annotated[float, Option("--yarn-ext-factor", values.number(-1, 1e3),
        "YaRN: how much is extrapolated (-1: as usual)", "X")] = -1.0
    yarn_attn_factor: Annotated[float, Option("--yarn-attn-factor", values.number(-1, 1e3),
        "YaRN: scale of attention (-1: as usual)", "X")] = -1.0
    yarn_beta_slow: Annotated[float, Option("--yarn-beta-slow", values.number(-1, 1e6),
        "YaRN: alpha (-1: as usual)", "X")] = -1.0
    yarn_beta_fast: Annotated[float, Option("--yarn-beta-fast", values.number(-1, 1e6),
        "YaRN: beta (-1: as usual)", "X")] = -1.0

    log_format: Annotated[str, Option("--log-format", values.one_of("console", "json"),
        "console or json (console)", "FORMAT", env="LLORCH_LOG_FORMAT", topic="Log"),
        Option("--log-jsonl", values.switch_to("json", "console"), "the same as --log-format json",
        "on|off", const="on")] = "console"
    log_file: Annotated[str | None, Option("--log-file", values.nonempty,
        "file to which the log is appended too (none)", "FILE")] = None
    otel: Annotated[bool, Option("--otel", values.switch,
        "send a span of each request by OpenTelemetry, to where the variables OTEL_... say; needs "
        "the packages of the extra otel (off)", "on|off", const=True)] = False
    verbose: Annotated[bool, Option("--verbose -v", values.switch,
        "also log what llama.cpp says (off)", "on|off", const=True)] = False
    # fmt: on

    @property
    def sampling(self) -> dict[str, Any]:
        """Fields of sampling, as requests call them, that count where a request does not say."""
        fields = {option.field for option in OPTIONS if option.topic == SAMPLING}
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
        return keys.keys_of(self.api_key, self.api_key_file)

    @property
    def guesses(self) -> str:
        """Who guesses tokens."""
        return self.draft or "auto"

    @property
    def uses_heads(self) -> bool:
        """Whether heads in the model's own file are asked for; `with_heads` does so for `auto`."""
        return self.guesses == "mtp" or (self.guesses == "both" and self.draft_model is None)

    @property
    def callback(self) -> str | None:
        """The address to call once the worker is ready, or None.

        Managers under test give port 9999 on localhost, where nobody answers: it is not called.
        """
        test = "localhost:9999" in (self.callback_url or "")
        return None if self.local_mode or test else self.callback_url

    def __repr__(self) -> str:
        """The fields that may be shown: without keys, and addresses that could hold one."""
        shown = (name for name in self.__struct_fields__ if name not in _SECRET)
        return f"Settings({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _declared() -> Iterator[Option]:
    topic = ""
    for field, hint in Settings.__annotations__.items():
        for option in hint.__metadata__:
            topic = option.topic or topic
            yield msgspec.structs.replace(option, field=field, topic=topic)


OPTIONS = tuple(_declared())
