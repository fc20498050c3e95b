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
LOG_LEVELS = ("debug", "info", "warning", "error")
_BACKENDS = ("cpu", "cuda", "metal", "vulkan", "rpc")
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
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
        "GGUF file, or a model's name such as tinyllama:Q4_K_M (default: the embedded demo model)",
        "FILE", topic="Model")] = None
    hf_repo: Annotated[str | None, Option("--hf-repo -hf -hfr", values.repository,
        "model on the Hub, downloaded if it is not on this machine: "
        "ORGANIZATION/REPOSITORY[:QUANT] (Q4_K_M if the repository has it)", "REPO")] = None
    hf_file: Annotated[str | None, Option("--hf-file -hff", values.nonempty,
        "file of that repository, instead of a quant level", "FILE")] = None
    hf_token: Annotated[str | None, Option("--hf-token -hft", keys.key,
        "access token for the Hub; prefer the variable HF_TOKEN, which process lists do not show",
        "TOKEN")] = None
    offline: Annotated[bool, Option("--offline", values.switch,
        "download nothing from the Hub (off)", "on|off", const=True, env="HF_HUB_OFFLINE")] = False
    catalog: Annotated[str | None, Option("--catalog", values.nonempty,
        "your own list of models, in the format of models.toml", "FILE",
        env="GGUF_WORKER_MODELS")] = None
    alias: Annotated[tuple[str, ...], Option("--alias -a --served-model-name", values.some_names,
        "model id in /v1/models, and further names for it (the file's name)", "NAME,...")] = ()
    tags: Annotated[tuple[str, ...], Option("--tags", values.some_names,
        "tags reported in /v1/models", "WORD,...")] = ()
    override_kv: Annotated[tuple[tuple[str, bool | int | float | str], ...], Option("--override-kv",
        values.overrides, "override metadata keys of the file; repeat for several",
        "KEY=TYPE:VALUE", repeats=True)] = ()

    host: Annotated[str, Option("--host", values.hosts,
        "addresses to listen on; unix:PATH is a Unix socket (127.0.0.1)",
        "ADDR,...", topic="Server")] = "127.0.0.1"
    port: Annotated[int, Option("--port", values.integer(0, 65535),
        "port to listen on; 0 picks a free one (8080)")] = 8080
    socket_mode: Annotated[int, Option("--socket-mode", values.file_mode,
        "permissions of the Unix sockets of --host, in octal, whatever the umask is (600)",
        "MODE")] = 0o600
    ssl_cert_file: Annotated[str | None, Option("--ssl-cert-file", values.file_or_none,
        "serve HTTPS with the certificate in this PEM file, followed by those that vouch for it; "
        "reloaded at SIGHUP (none)", "FILE")] = None
    ssl_key_file: Annotated[str | None, Option("--ssl-key-file", values.file_or_none,
        "the certificate's private key, a PEM file without passphrase; reloaded at SIGHUP (none)",
        "FILE")] = None
    api_key: Annotated[str | None, Option("--api-key", keys.keys,
        "bearer keys, separated by commas, required on all paths but /health; prefer a file or a "
        "variable, which process lists do not show", "KEY",
        env="LLAMA_API_KEY LLORCH_API_TOKEN")] = None
    api_key_file: Annotated[KeyFile | None, Option("--api-key-file", keys.key_file,
        "file of bearer keys, one per line, # starts a comment; fields such as name=anna weight=2 "
        "rpm=60 may follow a key; reloaded at SIGHUP",
        "FILE")] = None
    trust_account: Annotated[bool, Option("--trust-account", values.switch,
        "requests with a key without a name belong to the account that their header X-Account "
        "describes, such as name=anna weight=2; only behind a relay that sets it, as a fleet's "
        "does (off)", "on|off", const=True)] = False
    fair_by: Annotated[str, Option("--fair-by", values.one_of("none", "user", "connection"),
        "requests without a named key share tokens fairly by user (header X-User, or user or "
        "metadata.user_id of the body), or by connection (the client's address) (none)",
        "none|user|connection")] = "none"
    cors: Annotated[tuple[str, ...], Option("--cors --cors-origins", values.origins,
        "origins whose pages may read answers, such as https://chat.example; localhost: pages of "
        "this machine, *: all (none)", "A,B")] = ()
    allowed_hosts: Annotated[tuple[str, ...], Option("--allowed-hosts", values.host_names,
        "names, besides addresses and localhost, by which clients may reach a worker without a "
        "key, such as worker, llm.example.com or *.svc; *: any (none)", "NAME,...")
        ] = ()
    api_prefix: Annotated[str, Option("--api-prefix", values.prefix,
        "serve all paths under this prefix as well (none)", "/PATH")] = ""
    page: Annotated[bool, Option("--page --webui --ui", values.switch,
        "serve the web UI at / (on)", "on|off", const=True,
        env="LLAMA_ARG_UI LLAMA_ARG_WEBUI"),
        Option("--no-page --no-webui --no-ui", values.opposite, "do not serve the web UI", "on|off",
        const=False)] = True
    sandbox: Annotated[bool, Option("--sandbox", values.switch,
        "restrict the process with Landlock to the files and ports it needs; Linux 6.7 or newer, "
        "no GPU (off)", "on|off", const=True)] = False
    queue_size: Annotated[int, Option("--queue-size", values.integer(0, 100_000),
        "requests that may wait (64)")] = 64
    max_connections: Annotated[int | None, Option("--max-connections", values.integer(1, 1_000_000),
        f"connections at once ({limits.CONNECTIONS.most}, plus one for each request that may run "
        "or wait)")] = None
    max_body: Annotated[int, Option("--max-body", values.integer(1, 1024),
        f"largest request body in MiB ({limits.BODY.most})", "MIB")] = limits.BODY.most
    max_media_body: Annotated[int, Option("--max-media-body", values.integer(1, 1024),
        "largest body in MiB that may show images or audio, at least --max-body "
        f"({limits.MEDIA_BODY.most})", "MIB")] = limits.MEDIA_BODY.most
    receive_timeout: Annotated[float, Option("--receive-timeout", values.number(0.1, 86_400),
        "seconds a client may take to send a request's head, and again its body "
        f"({limits.RECEIVE.most})", "SECONDS")] = limits.RECEIVE.most
    send_timeout: Annotated[float, Option("--send-timeout", values.number(0.1, 86_400),
        "seconds until a client that does not read its answer is disconnected "
        f"({limits.SEND.most})", "SECONDS")] = limits.SEND.most
    resume_seconds: Annotated[float, Option("--resume-seconds", values.number(0, 86_400),
        "seconds for which a stream asked for with X-Resume: on goes on without its client, and "
        "for which its events stay (0: none do)", "SECONDS")] = 0.0
    resume_memory: Annotated[int, Option("--resume-memory", values.integer(1, 65_536),
        f"memory in MiB for events of such streams ({limits.RESUMED.most})",
        "MIB")] = limits.RESUMED.most
    relayed: Annotated[bool, Option("--relayed", values.switch,
        "let clients continue answers that another worker began, as the fleet's gateway does; "
        "only for workers that no one else can reach (off)", "on|off", const=True)] = False
    drain_timeout: Annotated[float, Option("--drain-timeout", values.number(0, 3600),
        "seconds that running requests get at SIGTERM (4)", "SECONDS")] = 4.0
    sleep_idle_seconds: Annotated[float, Option("--sleep-idle-seconds", values.number(-1, 10**9),
        "free the model's memory after this many seconds without a request, until the next one "
        "(-1: never)", "SECONDS")] = -1.0
    wake_attempts: Annotated[int, Option("--wake-attempts", values.integer(0, 10**9),
        "failed loads in a row, when a sleeping model wakes, after which the worker exits "
        "(0: it stays, and each request tries again)", "N")] = 0

    n_predict: Annotated[int | None, Option("--predict --n-predict -n", values.num_predicted,
        "most tokens of an answer if a request does not say; -1: no limit (16 for "
        "/v1/completions, else no limit)", env="LLAMA_ARG_N_PREDICT", topic="Generation")] = None
    chat_template: Annotated[str | None, Option("--chat-template", values.nonempty,
        "chat template: a name from the file, chatml, llama3, phi3, zephyr, gemma, or Jinja text "
        "(the file's own)", "NAME")] = None
    chat_template_file: Annotated[str | None, Option("--chat-template-file", values.text_file,
        "file with the chat template; overrides --chat-template", "FILE")] = None
    chat_template_kwargs: Annotated[dict[str, Any] | None, Option("--chat-template-kwargs",
        values.json_object,
        "template variables if a request does not set them, such as "
        "'{\"enable_thinking\": false}' (none)", "JSON", env="LLAMA_CHAT_TEMPLATE_KWARGS")] = None
    reasoning: Annotated[str, Option("--reasoning -rea", values.one_of("on", "off", "auto"),
        "whether a reasoning model reasons if a request does not say; auto: as its template says "
        "(auto)", "on|off|auto")] = "auto"
    reasoning_effort: Annotated[str | None, Option("--reasoning-effort", values.nonempty,
        "reasoning effort, in the template's words, such as low (the template's own)",
        "WORD")] = None
    reasoning_budget: Annotated[int | None, Option("--reasoning-budget",
        values.integer_or_auto(0, _INT32),
        "most reasoning tokens of an answer; 0: no reasoning (-1: no limit)",
        env="LLAMA_ARG_THINK_BUDGET")] = None
    reasoning_budget_message: Annotated[str, Option("--reasoning-budget-message", values.nonempty,
        "text written when the reasoning budget is used up (none)", "TEXT",
        env="LLAMA_ARG_THINK_BUDGET_MESSAGE")] = ""
    reasoning_format: Annotated[str, Option("--reasoning-format",
        values.one_of("auto", "deepseek", "none"),
        "put reasoning into a field of its own (auto, deepseek) or leave it in the content (none); "
        "a request may override it (auto)", "auto|deepseek|none",
        env="LLAMA_ARG_THINK")] = "auto"
    reasoning_field: Annotated[str, Option("--reasoning-field",
        values.one_of("reasoning_content", "reasoning"),
        "name of that field in answers; both names are read in messages (reasoning_content)",
        "NAME")] = "reasoning_content"
    grammar: Annotated[str | None, Option("--grammar", values.nonempty,
        "GBNF grammar for requests that ask for no format of their own (none)", "GBNF"),
        Option("--grammar-file", values.text_file, "file with such a grammar", "FILE")] = None
    json_schema: Annotated[dict[str, Any] | None, Option("--json-schema -j", values.json_object,
        "JSON schema for requests that ask for no format of their own (none)", "JSON"),
        Option("--json-schema-file -jf", values.json_file, "file with such a schema",
        "FILE")] = None

    temperature: Annotated[float | None, Option("--temp --temperature", values.number(0, 100),
        "temperature; 0 is greedy (1)", env="LLAMA_ARG_TEMPERATURE")] = None
    top_k: Annotated[int | None, Option("--top-k", values.integer(-1, _INT32),
        "keep the k most likely tokens; 0 keeps all (0)")] = None
    top_p: Annotated[float | None, Option("--top-p", values.number(0, 1),
        "keep the most likely tokens with this total probability (1)")] = None
    min_p: Annotated[float | None, Option("--min-p", values.number(0, 1),
        "keep tokens with at least this share of the highest probability (0)")] = None
    typical_p: Annotated[float | None, Option("--typical --typical-p", values.number(0, 1),
        "keep the locally typical set with this total probability (1)")] = None
    repeat_penalty: Annotated[float | None, Option("--repeat-penalty", values.number(1e-3, 100),
        "repetition penalty; 1 is off (1)")] = None
    repeat_last_n: Annotated[int | None, Option("--repeat-last-n", values.integer(-1, _INT32),
        "tokens that the penalties look at; -1: all (64)")] = None
    presence_penalty: Annotated[float | None, Option("--presence-penalty", values.number(-100, 100),
        "subtracted once from tokens that the answer contains (0)")] = None
    frequency_penalty: Annotated[float | None, Option("--frequency-penalty",
        values.number(-100, 100), "subtracted for each time that it contains them (0)")] = None
    dry_multiplier: Annotated[float | None, Option("--dry-multiplier", values.number(0, 100),
        "DRY multiplier; 0 is off (0)")] = None
    dry_base: Annotated[float | None, Option("--dry-base", values.number(1, 100),
        "DRY base (1.75)")] = None
    dry_allowed_length: Annotated[int | None, Option("--dry-allowed-length",
        values.integer(0, _INT32), "longest repetition that DRY does not penalize (2)")] = None
    dry_penalty_last_n: Annotated[int | None, Option("--dry-penalty-last-n",
        values.integer(-1, _INT32), "tokens that DRY looks at; -1: all (-1)")] = None
    xtc_probability: Annotated[float | None, Option("--xtc-probability", values.number(0, 1),
        "probability that XTC removes the most likely tokens (0)")] = None
    xtc_threshold: Annotated[float | None, Option("--xtc-threshold", values.number(0, 1),
        "probability from which XTC removes tokens (0.1)")] = None
    mirostat: Annotated[int | None, Option("--mirostat", values.integer(0, 2),
        "Mirostat version; 0 is off (0)")] = None
    mirostat_tau: Annotated[float | None, Option("--mirostat-ent", values.number(0, 100),
        "Mirostat target entropy (5)")] = None
    mirostat_eta: Annotated[float | None, Option("--mirostat-lr", values.number(0, 1),
        "Mirostat learning rate (0.1)")] = None
    top_n_sigma: Annotated[float | None, Option("--top-n-sigma --top-nsigma",
        values.number(-1, 100),
        "keep logits within this many standard deviations of the highest; -1: all (-1)")] = None
    dynatemp_range: Annotated[float | None, Option("--dynatemp-range", values.number(0, 100),
        "dynamic temperature range (0)")] = None
    dynatemp_exponent: Annotated[float | None, Option("--dynatemp-exp", values.number(0, 100),
        "dynamic temperature exponent (1)")] = None
    adaptive_target: Annotated[float | None, Option("--adaptive-target", values.number(-1, 1),
        "probability that adaptive-p aims at; below 0 is off (-1)")] = None
    adaptive_decay: Annotated[float | None, Option("--adaptive-decay", values.number(0, 1),
        "adaptive-p decay (0.9)")] = None
    samplers: Annotated[tuple[str, ...] | None, Option("--samplers", values.samplers,
        "samplers to use, in order (penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;"
        "temperature;adaptive_p; also infill)", "A;B"),
        Option("--sampling-seq --sampler-seq", values.samplers,
        "the same with one letter each: edskypmxta", "LETTERS")] = None
    logit_bias: Annotated[tuple[tuple[int, float], ...] | None, Option("--logit-bias -l",
        values.logit_biases(limits.BIAS.most),
        "add BIAS to the logit of a token; repeat for several (none)",
        "TOKEN_ID(+/-)BIAS", repeats=True)] = None
    seed: Annotated[int | None, Option("--seed -s", values.integer_or_auto(0, 2**32 - 1),
        "seed; equal seeds give equal texts (-1: random for each request)")] = None
    ignore_eos: Annotated[bool | None, Option("--ignore-eos", values.switch,
        "do not stop at an end-of-generation token (off)", "on|off", const="on")] = None

    ctx_size: Annotated[int | None, Option("--ctx-size -c --n-ctx --max-model-len",
        values.integer(0, _INT32),
        "KV cells in total, shared by all sequences, rounded up to a multiple of 256 (fitted to "
        "model and memory)", topic="Context and cache")] = None
    parallel: Annotated[int | None, Option("--parallel -np --max-num-seqs",
        values.integer_or_auto(1, 256),
        "sequences decoded at once (-1: 4, fewer if memory is short)",
        env="LLAMA_ARG_N_PARALLEL")] = None
    batch_size: Annotated[int, Option("--batch-size -b", values.integer(1, 65536),
        "most tokens in a step (512)", env="LLAMA_ARG_BATCH")] = 512
    ubatch_size: Annotated[int, Option("--ubatch-size -ub", values.integer(1, 65536),
        "most tokens computed at once inside a step (512)", env="LLAMA_ARG_UBATCH")] = 512
    max_stall_ms: Annotated[int, Option("--max-stall-ms", values.integer(1, 60_000),
        "milliseconds that running streams may wait while a prompt is processed (400)")] = 400
    cache_type_k: Annotated[str, Option("--cache-type-k -ctk", values.one_of(*CACHE_TYPES),
        "data type of K in the KV cache (f16)", "TYPE")] = "f16"
    cache_type_v: Annotated[str, Option("--cache-type-v -ctv", values.one_of(*CACHE_TYPES),
        "data type of V in the KV cache (f16)", "TYPE")] = "f16"
    cache_ram: Annotated[int | None, Option("--cache-ram -cram", values.integer(-1, _INT32),
        "host memory in MiB for the states of ended conversations; 0 keeps none (-1: fitted to "
        "the free memory)", "MIB")] = None
    cache_dir: Annotated[str | None, Option("--cache-dir", values.folder,
        "folder where these states are written too, so that they survive a restart; protect it "
        "like the prompts (none)", "DIR")] = None
    cache_disk: Annotated[int | None, Option("--cache-disk", values.integer(1, _INT32),
        "size of that folder in MiB, for all models (8192, or half of the free space)",
        "MIB")] = None
    slot_save_path: Annotated[str | None, Option("--slot-save-path", values.folder,
        "folder for POST /slots/N?action=save; protect it like the prompts (none)", "DIR")] = None
    rope_scaling: Annotated[str | None, Option("--rope-scaling",
        values.one_of("none", "linear", "yarn"),
        "RoPE scaling for contexts longer than the trained one (as the file says)",
        "none|linear|yarn", env="LLAMA_ARG_ROPE_SCALING_TYPE")] = None
    rope_scale: Annotated[float | None, Option("--rope-scale", values.number(1e-3, 1e3),
        "RoPE context scaling factor (as the file says)", "X"),
        Option("--rope-freq-scale", values.inverse(1e-3, 1e3), "the same as 1 / --rope-scale",
        "X")] = None
    rope_freq_base: Annotated[float | None, Option("--rope-freq-base", values.number(1, 1e12),
        "RoPE base frequency; the context may then be as long as --ctx-size (as the file says)",
        "X")] = None
    yarn_orig_ctx: Annotated[int | None, Option("--yarn-orig-ctx", values.integer(1, _INT32),
        "YaRN: original context size (as the file says)")] = None
    yarn_ext_factor: Annotated[float, Option("--yarn-ext-factor", values.number(-1, 1e3),
        "YaRN: extrapolation factor (-1: the default)", "X")] = -1.0
    yarn_attn_factor: Annotated[float, Option("--yarn-attn-factor", values.number(-1, 1e3),
        "YaRN: attention scale (-1: the default)", "X")] = -1.0
    yarn_beta_slow: Annotated[float, Option("--yarn-beta-slow", values.number(-1, 1e6),
        "YaRN: high correction dimension (-1: the default)", "X")] = -1.0
    yarn_beta_fast: Annotated[float, Option("--yarn-beta-fast", values.number(-1, 1e6),
        "YaRN: low correction dimension (-1: the default)", "X")] = -1.0

    draft: Annotated[str | None, Option("--draft",
        values.one_of("auto", "none", "ngram", "model", "mtp", "both"),
        "source of draft tokens: ngram (prompt lookup), model (the draft model), mtp (the file's "
        "MTP heads), both (ngram with model or heads), auto (all there are) (auto)",
        "auto|none|ngram|model|mtp|both", topic="Speculative decoding"),
        Option("--spec-type", values.speculation,
        "the same in llama-server's words: none, ngram-mod, draft-simple, draft-eagle3, "
        "draft-dflash, draft-mtp",
        "TYPE"),
        Option("--spec-default", values.switch_to("ngram", "none"), "the same as --draft ngram",
        "on|off", const="on")] = None
    draft_model: Annotated[str | None, Option("--draft-model --model-draft -md --spec-draft-model",
        values.nonempty, "draft model: a smaller model with the same vocabulary, or the model's "
        "EAGLE-3 or DFlash drafter or Gemma 4 assistant; a file or a name (none)",
        "FILE", env="LLAMA_ARG_SPEC_DRAFT_MODEL")] = None
    hf_draft: Annotated[str | None, Option("--hf-repo-draft -hfd -hfrd --spec-draft-hf",
        values.repository, "draft model on the Hub, written as for --hf-repo", "REPO")] = None
    draft_max: Annotated[int | None, Option("--draft-max --draft-n --spec-draft-n-max",
        values.integer(1, 1024), "most draft tokens per step (as many as pay)")] = None
    ngram_max: Annotated[int | None, Option("--spec-ngram-mod-n-max --spec-ngram-simple-size-m "
        "--spec-ngram-map-k-size-m --spec-ngram-map-k4v-size-m",
        values.integer(1, 1024), "the same for prompt lookup (as --draft-max)")] = None
    draft_p_min: Annotated[float, Option("--draft-p-min --spec-draft-p-min", values.number(0, 1),
        "stop drafting at tokens less likely than this (0)", "P")] = 0.0

    pooling: Annotated[str | None, Option("--pooling",
        values.one_of("none", "mean", "cls", "last", "rank"),
        "serve embeddings with this pooling: one for each token, their mean, the first or last "
        "token's, or a classifier's score (as the file of an embedding model says)",
        "none|mean|cls|last|rank", topic="Embeddings"),
        Option("--rerank --reranking", values.switch_to("rank", None), "the same as --pooling rank",
        "on|off", const="on")] = None
    decisions: Annotated[str, Option("--decisions",
        values.one_of("auto", "letters", "texts"),
        "how options of /v1/decisions and /v1/systemone are scored: by one letter each, by their "
        "whole texts, or letters as far as the vocabulary has them (auto)",
        "auto|letters|texts", topic="Decisions")] = "auto"
    decisions_orders: Annotated[int, Option("--decisions-orders", values.integer(1, 255),
        "orders of a choice's options whose probabilities are averaged (2)")] = 2
    decisions_calibration: Annotated[bool, Option("--decisions-calibration", values.switch,
        "use the temperatures that `worker bench --decisions` measured, from "
        "MODEL.gguf.decisions.json (on)", "on|off")] = True

    state_dir: Annotated[str | None, Option("--state-dir", values.folder,
        "folder for batches and their files, which survive a restart; protect it like the prompts "
        "(none: /v1/batches and /v1/files are off)", "DIR", topic="Batches")] = None
    batch_lines: Annotated[int, Option("--batch-lines", values.integer(1, 10**7),
        f"most lines of a batch ({limits.BATCH_LINES.most})")] = limits.BATCH_LINES.most
    batch_file: Annotated[int, Option("--batch-file", values.integer(1, 1 << 20),
        f"largest uploaded file in MiB ({limits.BATCH_FILE.most})",
        "MIB")] = limits.BATCH_FILE.most
    batch_files: Annotated[int, Option("--batch-files", values.integer(1, 10**6),
        f"most uploaded files of a key ({limits.BATCH_FILES.most})")] = limits.BATCH_FILES.most
    keep_days: Annotated[int, Option("--keep-days", values.integer(1, 3650),
        f"days for which files and ended batches are kept ({limits.KEPT_DAYS.most})",
        )] = limits.KEPT_DAYS.most

    lora: Annotated[tuple[AdapterSpec, ...], Option("--lora", values.adapters,
        "LoRA adapter, chosen by requests whose model is NAME, at SCALE (1); without NAME it "
        "applies to all requests that choose none; repeat for several (none)",
        "FILE[=NAME[:SCALE]]", repeats=True, topic="Adapters"),
        Option("--lora-scaled", values.scaled_adapters,
        "LoRA adapter with its scale, for all requests that choose none", "FILE:SCALE",
        repeats=True)] = ()
    lora_init_without_apply: Annotated[bool, Option("--lora-init-without-apply", values.switch,
        "load adapters but apply none until POST /lora-adapters says so (off)",
        "on|off", const=True)] = False
    lora_dir: Annotated[tuple[str, ...], Option("--lora-dir", values.there,
        "folder from which /v1/load_lora_adapter may load adapters at run time (none: it is off)",
        "DIR", repeats=True)] = ()
    lora_memory: Annotated[int | None, Option("--lora-memory", values.integer(1, _INT32),
        "memory in MiB for adapters loaded at run time (256)", "MIB")] = None
    control_vector: Annotated[tuple[AdapterSpec, ...], Option("--control-vector", values.vectors,
        "control vector added for all requests; repeat for several (none)", "FILE", repeats=True),
        Option("--control-vector-scaled", values.scaled_adapters, "control vector with its scale",
        "FILE:SCALE", repeats=True)] = ()
    control_layers: Annotated[tuple[int, int] | None, Option("--control-vector-layer-range",
        values.layer_range, "layers to which it is added, counted from 1 (all)",
        "START END")] = None

    mmproj: Annotated[str | None, Option("--mmproj -mm", values.nonempty,
        "projector for images and audio (the one beside the model with its name)", "FILE",
        topic="Images and audio")] = None
    mmproj_auto: Annotated[bool, Option("--mmproj-auto", values.switch,
        "look for a projector beside the model (on)", "on|off", const=True),
        Option("--no-mmproj --no-mmproj-auto", values.opposite, "do not look for one", "on|off",
        const=False)] = True
    mmproj_offload: Annotated[bool, Option("--mmproj-offload", values.switch,
        "run the projector on the GPU if the model's layers are there (on)", "on|off", const=True),
        Option("--no-mmproj-offload", values.opposite, "keep it on the CPU", "on|off",
        const=False)] = True
    media_dir: Annotated[str | None, Option("--media-dir --media-path", values.media_folder,
        "folder of files that requests may name with file:// (none)", "DIR")] = None
    fetch_images: Annotated[tuple[tuple[str, int], ...], Option("--fetch-images", values.sources,
        "hosts from which images and audio named by http:// or https:// are downloaded; names "
        "must resolve to public addresses, list other addresses by number (none)",
        "HOST[:PORT],...", repeats=True)] = ()

    backend: Annotated[str | None, Option("--backend", values.one_of(*_BACKENDS),
        "fail unless the model runs on this backend", "NAME", topic="Devices")] = None
    threads: Annotated[int | None, Option("--threads -t", values.integer_or_auto(1, 4096),
        "compute threads (-1: as many as are fastest, at most the CPUs this process may "
        "use)")] = None
    threads_batch: Annotated[int | None, Option("--threads-batch -tb",
        values.integer_or_auto(1, 4096), "compute threads for prompts (-1: as --threads)")] = None
    n_gpu_layers: Annotated[int | None, Option("--n-gpu-layers --gpu-layers -ngl", values.layers,
        "layers to offload: a number, all, or auto (as many as fit the GPU)")] = None
    device: Annotated[tuple[str, ...], Option("--device -dev", values.names,
        "devices to use: names as `worker version` prints them, numbers, or kind:number", "A,B"),
        Option("--cuda-device", values.nth("cuda"), "CUDA device with this number"),
        Option("--metal-device", values.nth("metal"), "Metal device with this number"),
        Option("--gpu-device", values.nth("gpu"), "GPU with this number, of any kind")] = ()
    split_mode: Annotated[str, Option("--split-mode -sm", values.one_of("none", "layer", "row"),
        "how to split the model over devices (layer)", "MODE")] = "layer"
    tensor_split: Annotated[tuple[float, ...], Option("--tensor-split -ts", values.shares,
        "share of each device", "S,S")] = ()
    main_gpu: Annotated[int, Option("--main-gpu -mg", values.integer(0, 255),
        "device for --split-mode none")] = 0
    cpu_moe: Annotated[int | None, Option("--n-cpu-moe -ncmoe", values.integer(0, 10_000),
        "keep the MoE experts of the first N layers on the CPU (as few as fit the GPU)"),
        Option("--cpu-moe -cmoe", values.every_layer, "keep all MoE experts on the CPU", "on|off",
        const="on")] = None
    override_tensor: Annotated[tuple[tuple[str, str], ...], Option("--override-tensor -ot",
        values.placements, "device for tensors whose names match an expression; the first match "
        "wins", "REGEX=DEVICE,...")] = ()
    rpc: Annotated[tuple[str, ...], Option("--rpc", values.servers,
        "llama.cpp RPC servers whose devices are used too; RPC has no key and no encryption, use "
        "it on loopback or a closed network only", "HOST:PORT,...")] = ()
    flash_attn: Annotated[str, Option("--flash-attn -fa", values.one_of("on", "off", "auto"),
        "flash attention; auto: on a CPU as `worker calibrate` measured (auto)",
        "MODE", const="on")] = "auto"
    mmap: Annotated[bool | None, Option("--mmap", values.switch,
        "map the model file, which starts sooner (on without a GPU); overwriting a mapped file in "
        "place ends the worker", "on|off", const=True),
        Option("--no-mmap", values.opposite, "read the model file instead", "on|off", const=False),
        Option("--load-mode -lm", values.load_mode,
        "the same in llama-server's words: none, dio, auto or mmap", "MODE")] = None
    mlock: Annotated[bool, Option("--mlock", values.switch,
        "lock the weights in memory, as far as the system's limit allows (off)", "on|off",
        const=True)] = False

    model_ref: Annotated[str | None, Option("--model-ref", values.name,
        "the manager's name for the model, reported back", "REF", topic="Manager")] = None
    worker_id: Annotated[str | None, Option("--worker-id", values.name,
        "the manager's id for this worker (a new UUID)", "ID")] = None
    callback_url: Annotated[str | None, Option("--callback-url", values.address,
        "POST to this URL once when ready; exit code 5 if it is refused", "URL")] = None
    heartbeat_url: Annotated[str | None, Option("--heartbeat-url", values.address,
        "POST to this URL at every heartbeat", "URL"),
        Option("--hive-url --queen-url", values.heartbeat_base,
        "the manager's base URL; " + values.HEARTBEAT_PATH + " is added", "URL")] = None
    heartbeat_interval: Annotated[float, Option("--heartbeat-interval", values.number(0.1, 86_400),
        "seconds between heartbeats (30)", "SECONDS")] = 30.0
    public_host: Annotated[str | None, Option("--public-host", values.host,
        "host name reported to the manager (as --host)", "NAME",
        env="RBEE_WORKER_HOST")] = None
    local_mode: Annotated[bool, Option("--local-mode", values.switch,
        "listen on loopback only and call no manager back (off)", "on|off", const=True)] = False
    die_with_parent: Annotated[str, Option("--die-with-parent", values.parent,
        "exit when the parent process dies or, with stdin, when standard input ends (off)",
        "process|stdin", const="process")] = "off"
    inference_timeout: Annotated[float, Option("--inference-timeout-sec --inference-timeout",
        values.number(0.1, 86_400), "seconds that a job of /execute may take (300)",
        "SECONDS")] = 300.0
    max_tokens_out: Annotated[int, Option("--max-tokens-out", values.integer(1, _INT32),
        "most tokens that such a job may ask for (2048)")] = 2048

    log_level: Annotated[str, Option("--log-level", values.one_of(*LOG_LEVELS),
        "least severe log lines to write; debug includes llama.cpp's (info)",
        "|".join(LOG_LEVELS), topic="Logging"),
        Option("--verbose -v", values.switch_to("debug", "info"), "the same as --log-level debug",
        "on|off", const="on"),
        Option("--quiet -q", values.switch_to("warning", "info"),
        "the same as --log-level warning", "on|off", const="on"),
        Option("--log-verbosity --verbosity -lv", values.verbosity,
        "the same in llama-server's numbers: 1 error, 2 warning, 3 info, 4 debug")] = "info"
    log_format: Annotated[str, Option("--log-format", values.one_of("console", "json"),
        "console or json (console)", "FORMAT", env="LLORCH_LOG_FORMAT"),
        Option("--log-jsonl", values.switch_to("json", "console"), "the same as --log-format json",
        "on|off", const="on")] = "console"
    log_file: Annotated[str | None, Option("--log-file", values.nonempty,
        "append the log to this file as well (none)", "FILE")] = None
    access_log: Annotated[bool, Option("--access-log", values.switch,
        "log a line for each request (on)", "on|off", const=True),
        Option("--no-access-log", values.opposite, "log no such lines", "on|off",
        const=False)] = True
    otel: Annotated[bool, Option("--otel", values.switch,
        "export a span for each request with OpenTelemetry, as the OTEL_... variables say; needs "
        "the packages of the extra otel (off)", "on|off", const=True)] = False
    # fmt: on

    @property
    def sampling(self) -> dict[str, Any]:
        """Fields of sampling, as requests call them, that count where a request does not say."""
        names = _SAMPLING_FIELDS
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def verbose(self) -> bool:
        """Whether the log has all there is to say."""
        return self.log_level == "debug"

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
    def socket_paths(self) -> tuple[str, ...]:
        """Of the Unix sockets among the addresses."""
        found = (host for host in self.host.split(",") if host.startswith(values.UNIX))
        return tuple(path.removeprefix(values.UNIX) for path in found)

    @property
    def reads_again(self) -> bool:
        """Whether SIGHUP means that a file of keys or certificates has changed."""
        return self.api_key_file is not None or self.ssl_cert_file is not None

    @property
    def guesses(self) -> str:
        """Who guesses tokens."""
        return self.draft or "auto"

    @property
    def uses_heads(self) -> bool:
        """Whether heads in the model's own file are asked for; `Fitting` does so for `auto`."""
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


def _declared_options() -> Iterator[Option]:
    topic = ""
    for field, hint in Settings.__annotations__.items():
        for option in hint.__metadata__:
            topic = option.topic or topic
            yield msgspec.structs.replace(option, field=field, topic=topic)


OPTIONS = tuple(_declared_options())
_FIELDS = Settings.__struct_fields__
_SAMPLING_FIELDS = _FIELDS[_FIELDS.index("temperature") : _FIELDS.index("ignore_eos") + 1]
