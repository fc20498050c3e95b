"""The table of options: flags, environment variables, help. No other module knows their names.

`values.py` reads their texts, `settings.py` has the fields that they set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from worker import keys, limits, values

BACKENDS = ("cpu", "cuda", "metal", "vulkan", "rpc")
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")


class Option(msgspec.Struct, frozen=True):
    """One way to set a field of Settings: its flags, how its text is read, and its help.

    metavar  what the help calls the value
    env      environment variables besides LLAMA_ARG_<the first flag>
    const    the value when the flag stands alone; None: it needs one
    repeats  each time that the flag is given adds to the values
    """

    field: str
    flags: tuple[str, ...]
    read: Callable[[str], Any]
    help: str
    metavar: str = "N"
    env: tuple[str, ...] = ()
    const: Any = None
    repeats: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables that set it; the first one that is set counts."""
        name = self.flags[0].lstrip("-").replace("-", "_").upper()
        return (f"LLAMA_ARG_{name}", *self.env)


_INT32 = 2**31 - 1

SAMPLING = "Sampling, where a request does not say otherwise"

# Topic of the help -> its options.
# fmt: off
TOPICS: dict[str, tuple[Option, ...]] = {
    "Model": (
        Option("model", ("--model", "-m"), values.nonempty,
               "GGUF file, or a model's name: tinyllama:Q4_K_M (default: the embedded demo model)",
               "FILE"),
        Option("catalog", ("--catalog",), values.nonempty,
               "your own list of models, of the form of models.toml", "FILE",
               env=("GGUF_WORKER_MODELS",)),
        Option("hf_repo", ("--hf-repo", "-hf", "-hfr"), values.repository,
               "model of the Hub, which is fetched where it is not here: "
               "ORGANISATION/REPOSITORY[:QUANT] (Q4_K_M where there is one)", "REPO"),
        Option("hf_file", ("--hf-file", "-hff"), values.nonempty,
               "file of that repository, in the place of an encoding", "FILE"),
        Option("hf_token", ("--hf-token", "-hft"), keys.key,
               "token for the Hub; better the variable HF_TOKEN, which process lists do not show",
               "TOKEN"),
        Option("offline", ("--offline",), values.switch, "fetch nothing from the Hub (off)",
               "on|off", const=True, env=("HF_HUB_OFFLINE",)),
        Option("alias", ("--alias", "-a", "--served-model-name"), values.some_names,
               "model id in /v1/models, and other names of it (the file's name)", "NAME,..."),
        Option("tags", ("--tags",), values.some_names, "words about it, told there", "WORD,..."),
        Option("model_ref", ("--model-ref",), values.name,
               "the manager's name for the model, reported back", "REF"),
    ),
    "Service": (
        Option("host", ("--host",), values.hosts, "addresses to listen on (127.0.0.1)", "ADDR,..."),
        Option("port", ("--port",), values.integer(0, 65535),
               "port to listen on; 0 takes a free one (8080)"),
        Option("api_key", ("--api-key",), keys.keys,
               "bearer key that all paths but /health ask for, or several, separated by commas; "
               "process lists show it until the worker has overwritten it: better a file or a "
               "variable", "KEY", env=("LLAMA_API_KEY", "LLORCH_API_TOKEN")),
        Option("api_key_file", ("--api-key-file",), keys.key_file,
               "file of such keys, one a line, # begins a comment; read again at SIGHUP", "FILE"),
        Option("cors", ("--cors", "--cors-origins"), values.origins,
               "pages of these origins, such as https://chat.example, may read answers; localhost: "
               "those of this machine, *: all (none)", "A,B"),
        Option("api_prefix", ("--api-prefix",), values.prefix,
               "beginning of a path behind which all paths are found too (none)", "/PATH"),
        Option("sandbox", ("--sandbox",), values.switch,
               "open nothing but what a worker needs, start no program, connect to the manager's "
               "port alone: by Landlock, from Linux 6.7 on, without a GPU (off)", "on|off",
               const=True),
        Option("queue_size", ("--queue-size",), values.integer(0, 100_000),
               "requests that may wait (64)"),
        Option("max_connections", ("--max-connections",), values.integer(1, 1_000_000),
               f"connections at once ({limits.CONNECTIONS.most} and one for each request that may "
               "run or wait)"),
        Option("max_body", ("--max-body",), values.integer(1, 1024),
               f"MiB of a request's body ({limits.BODY.most})", "MIB"),
        Option("receive_timeout", ("--receive-timeout",), values.number(0.1, 86_400),
               "seconds for a request's head to arrive, and again for its body "
               f"({limits.RECEIVE.most})", "SECONDS"),
        Option("send_timeout", ("--send-timeout",), values.number(0.1, 86_400),
               "seconds after which a client that takes nothing of its answer is let go "
               f"({limits.SEND.most})", "SECONDS"),
        Option("drain_timeout", ("--drain-timeout",), values.number(0, 3600),
               "seconds running requests get at SIGTERM (4)", "SECONDS"),
        Option("sleep_idle_seconds", ("--sleep-idle-seconds",), values.number(-1, 10**9),
               "seconds without a request after which the model's memory is given back until the "
               "next one (-1: never)", "SECONDS"),
        Option("page", ("--page", "--webui", "--ui"), values.switch,
               "show browsers a page at / (on); it asks for the key like every client", "on|off",
               const=True, env=("LLAMA_ARG_UI", "LLAMA_ARG_WEBUI")),
        Option("page", ("--no-page", "--no-webui", "--no-ui"), values.opposite, "the opposite",
               "on|off", const=False),
    ),
    "Pool manager": (
        Option("worker_id", ("--worker-id",), values.name,
               "the manager's id for this worker (a new UUID)", "ID"),
        Option("callback_url", ("--callback-url",), values.address,
               "POSTed once when ready; exit code 5 when refused", "URL"),
        Option("heartbeat_url", ("--heartbeat-url",), values.address, "POSTed at every heartbeat",
               "URL"),
        Option("heartbeat_url", ("--hive-url", "--queen-url"), values.heartbeat_base,
               "the same, given the manager's own address: " + values.HEARTBEAT_PATH + " is added",
               "URL"),
        Option("heartbeat_interval", ("--heartbeat-interval",), values.number(0.1, 86_400),
               "seconds between heartbeats (30)", "SECONDS"),
        Option("public_host", ("--public-host",), values.host,
               "host in the address that the manager is told (as --host)", "NAME",
               env=("RBEE_WORKER_HOST",)),
        Option("local_mode", ("--local-mode",), values.switch,
               "listen on loopback only and call no manager back (off)", "on|off", const=True),
        Option("die_with_parent", ("--die-with-parent",), values.parent,
               "leave when the parent process dies or, with stdin, when standard input ends (off)",
               "process|stdin", const="process"),
    ),
    "Work": (
        Option("ctx_size", ("--ctx-size", "-c", "--n-ctx", "--max-model-len"),
               values.integer(0, _INT32),
               "KV cells in all, shared by all sequences, rounded up to a multiple of 256 "
               "(fitted to model and memory)"),
        Option("parallel", ("--parallel", "-np", "--max-num-seqs"), values.integer_or_auto(1, 256),
               "sequences decoded at once (-1: 4, fewer where memory is short)",
               env=("LLAMA_ARG_N_PARALLEL",)),
        Option("inference_timeout", ("--inference-timeout-sec", "--inference-timeout"),
               values.number(0.1, 86_400), "seconds that a job may take (300)", "SECONDS"),
        Option("max_tokens_out", ("--max-tokens-out",), values.integer(1, _INT32),
               "tokens that a job may ask for (2048)"),
        Option("max_stall_ms", ("--max-stall-ms",), values.integer(1, 60_000),
               "milliseconds that reading a prompt may make running streams wait (400)"),
        Option("n_predict", ("--predict", "--n-predict", "-n"), values.num_predicted,
               "tokens of an answer, at most, where a request does not say; -1: no limit (16 for "
               "/v1/completions, else no limit)", env=("LLAMA_ARG_N_PREDICT",)),
        Option("threads", ("--threads", "-t"), values.integer_or_auto(1, 4096),
               "compute threads (-1: as many as are fastest, at most the CPUs this process may "
               "use)"),
        Option("threads_batch", ("--threads-batch", "-tb"), values.integer_or_auto(1, 4096),
               "compute threads for prompts (-1: as --threads)"),
        Option("batch_size", ("--batch-size", "-b"), values.integer(1, 65536),
               "tokens in a step, at most (512)", env=("LLAMA_ARG_BATCH",)),
        Option("ubatch_size", ("--ubatch-size", "-ub"), values.integer(1, 65536),
               "tokens computed at once inside a step (512)", env=("LLAMA_ARG_UBATCH",)),
    ),
    "Chats": (
        Option("reasoning_format", ("--reasoning-format",),
               values.one_of("auto", "deepseek", "none"),
               "where a model's thoughts go: into a field of their own (auto, deepseek), or "
               "unparsed into the content (none); a request may say otherwise (auto)",
               "auto|deepseek|none", env=("LLAMA_ARG_THINK",)),
        Option("reasoning_field", ("--reasoning-field",),
               values.one_of("reasoning_content", "reasoning"),
               "that field's name in chat answers; both are read in messages (reasoning_content)",
               "NAME"),
        Option("lora", ("--lora",), values.adapters,
               "adapter of the model, or several: a request whose model is NAME is answered with "
               "it, scaled by SCALE (1); one without NAME is called like its file and counts for "
               "all requests that choose nothing (none)", "FILE[=NAME[:SCALE]]", repeats=True),
        Option("lora", ("--lora-scaled",), values.scaled_adapters,
               "the same for all requests that choose nothing, with its scale", "FILE:SCALE",
               repeats=True),
        Option("lora_dir", ("--lora-dir",), values.there,
               "folder from whose files /v1/load_lora_adapter may load adapters while the worker "
               "serves, and /v1/unload_lora_adapter unloads them (none: neither does)", "DIR",
               repeats=True),
        Option("lora_memory", ("--lora-memory",), values.integer(1, _INT32),
               "MiB for adapters that are loaded so (256)", "MIB"),
        Option("lora_init_without_apply", ("--lora-init-without-apply",), values.switch,
               "no adapter counts for requests that choose nothing, until /lora-adapters is told "
               "so (off)", "on|off", const=True),
        Option("control_vector", ("--control-vector",), values.vectors,
               "control vector, or several: added for all requests (none)", "FILE", repeats=True),
        Option("control_vector", ("--control-vector-scaled",), values.scaled_adapters,
               "the same with its scale", "FILE:SCALE", repeats=True),
        Option("control_layers", ("--control-vector-layer-range",), values.layer_range,
               "layers behind which it is added, from 1 (all)", "START END"),
        Option("reasoning", ("--reasoning", "-rea"), values.one_of("on", "off", "auto"),
               "whether a model that can think does so where a request does not say; auto: as its "
               "template has it (auto)", "on|off|auto"),
        Option("reasoning_effort", ("--reasoning-effort",), values.nonempty,
               "how much it thinks then, in the template's word, such as low (the template's own)",
               "WORD"),
        Option("reasoning_budget", ("--reasoning-budget",), values.integer_or_auto(0, _INT32),
               "tokens that it thinks then, at most; 0: it does not think (-1: no limit)",
               env=("LLAMA_ARG_THINK_BUDGET",)),
        Option("reasoning_budget_message", ("--reasoning-budget-message",), values.nonempty,
               "what is written at the end of a thought that is cut off (nothing)", "TEXT",
               env=("LLAMA_ARG_THINK_BUDGET_MESSAGE",)),
        Option("chat_template", ("--chat-template",), values.nonempty,
               "chat template: the name of one of the file's, chatml, llama3, phi3, zephyr, gemma, "
               "or Jinja (the file's own)", "NAME"),
        Option("chat_template_file", ("--chat-template-file",), values.text_file,
               "file that holds the chat template; it counts before --chat-template", "FILE"),
        Option("chat_template_kwargs", ("--chat-template-kwargs",), values.json_object,
               "variables of the chat template where a request does not name them, such as "
               "'{\"enable_thinking\": false}' (none)", "JSON",
               env=("LLAMA_CHAT_TEMPLATE_KWARGS",)),
    ),
    "Guessed tokens": (
        Option("draft_model", ("--draft-model", "--model-draft", "-md", "--spec-draft-model"),
               values.nonempty,
               "smaller model of the same vocabulary, a file or a name, that guesses tokens (none)",
               "FILE", env=("LLAMA_ARG_SPEC_DRAFT_MODEL",)),
        Option("hf_draft", ("--hf-repo-draft", "-hfd", "-hfrd", "--spec-draft-hf"),
               values.repository, "the same of the Hub, as --hf-repo", "REPO"),
        Option("draft", ("--draft",),
               values.one_of("auto", "none", "ngram", "model", "mtp", "both"),
               "who guesses tokens, which are verified in the same step: auto, what the worker "
               "read and wrote lately, and the draft model; ngram, the text itself; the draft "
               "model; mtp, the file's own heads; or text and model or heads (auto)",
               "auto|none|ngram|model|mtp|both"),
        Option("draft", ("--spec-type",), values.speculation,
               "the same in llama-server's words: none, ngram-mod, draft-simple, draft-mtp",
               "TYPE"),
        Option("draft", ("--spec-default",), values.switch_to("ngram", "none"),
               "the same as --draft ngram", "on|off", const="on"),
        Option("draft_max", ("--draft-max", "--draft-n", "--spec-draft-n-max"),
               values.integer(1, 1024), "tokens of a guess, at most (as many as pay)"),
        Option("ngram_max", ("--spec-ngram-mod-n-max", "--spec-ngram-simple-size-m",
                             "--spec-ngram-map-k-size-m", "--spec-ngram-map-k4v-size-m"),
               values.integer(1, 1024), "the same where the text itself guesses (as --draft-max)"),
        Option("draft_p_min", ("--draft-p-min", "--spec-draft-p-min"), values.number(0, 1),
               "a guess ends where the draft model or the heads give a token less (0)", "P"),
        Option("pooling", ("--pooling",), values.one_of("none", "mean", "cls", "last", "rank"),
               "make vectors of texts too: one for each token, their mean, the first or the last "
               "one's, or a classifier's score (embedding models as their file says, others make "
               "none)", "none|mean|cls|last|rank"),
        Option("pooling", ("--rerank", "--reranking"), values.switch_to("rank", None),
               "the same as --pooling rank", "on|off", const="on"),
    ),
    SAMPLING: (
        Option("temperature", ("--temp", "--temperature"), values.number(0, 100), "0 is greedy (1)",
               env=("LLAMA_ARG_TEMPERATURE",)),
        Option("top_k", ("--top-k",), values.integer(-1, _INT32),
               "keep the k likeliest tokens; 0 keeps all (0)"),
        Option("top_p", ("--top-p",), values.number(0, 1),
               "keep the likeliest with this much probability (1)"),
        Option("min_p", ("--min-p",), values.number(0, 1),
               "keep what has this share of the likeliest's probability (0)"),
        Option("typical_p", ("--typical", "--typical-p"), values.number(0, 1),
               "keep the locally typical set with this much probability (1)"),
        Option("repeat_penalty", ("--repeat-penalty",), values.number(1e-3, 100),
               "above 1 repeats less (1)"),
        Option("repeat_last_n", ("--repeat-last-n",), values.integer(-1, _INT32),
               "last tokens that it looks at; -1: all (64)"),
        Option("presence_penalty", ("--presence-penalty",), values.number(-100, 100),
               "taken from each token that the answer has (0)"),
        Option("frequency_penalty", ("--frequency-penalty",), values.number(-100, 100),
               "the same for each time that it has it (0)"),
        Option("dry_multiplier", ("--dry-multiplier",), values.number(0, 100), "DRY; 0 is off (0)"),
        Option("dry_base", ("--dry-base",), values.number(1, 100),
               "how fast it grows with a repetition's length (1.75)"),
        Option("dry_allowed_length", ("--dry-allowed-length",), values.integer(0, _INT32),
               "repetitions up to this length cost nothing (2)"),
        Option("dry_penalty_last_n", ("--dry-penalty-last-n",), values.integer(-1, _INT32),
               "last tokens that it looks at; -1: all (-1)"),
        Option("xtc_probability", ("--xtc-probability",), values.number(0, 1),
               "XTC: how often the likeliest tokens are left out (0)"),
        Option("xtc_threshold", ("--xtc-threshold",), values.number(0, 1),
               "where a less likely one has this much probability (0.1)"),
        Option("mirostat", ("--mirostat",), values.integer(0, 2),
               "Mirostat's version; 0 is off (0)"),
        Option("mirostat_tau", ("--mirostat-ent",), values.number(0, 100),
               "the surprise that it aims at (5)"),
        Option("mirostat_eta", ("--mirostat-lr",), values.number(0, 1), "how fast (0.1)"),
        Option("top_n_sigma", ("--top-n-sigma", "--top-nsigma"), values.number(-1, 100),
               "keep what is so many standard deviations below the largest logit; -1: all (-1)"),
        Option("dynatemp_range", ("--dynatemp-range",), values.number(0, 100),
               "the temperature changes by so much with how sure the model is (0)"),
        Option("dynatemp_exponent", ("--dynatemp-exp",), values.number(0, 100), "how fast (1)"),
        Option("adaptive_target", ("--adaptive-target",), values.number(-1, 1),
               "choose tokens of about this probability; below 0 is off (-1)"),
        Option("adaptive_decay", ("--adaptive-decay",), values.number(0, 1),
               "how long what was chosen counts (0.9)"),
        Option("samplers", ("--samplers",), values.samplers,
               "those that are used, in this order (penalties;dry;top_n_sigma;top_k;typ_p;top_p;"
               "min_p;xtc;temperature;adaptive_p; also infill)", "A;B"),
        Option("samplers", ("--sampling-seq", "--sampler-seq"), values.samplers,
               "the same, a letter each: edskypmxta", "LETTERS"),
        Option("seed", ("--seed", "-s"), values.integer_or_auto(0, 2**32 - 1),
               "the same seed gives the same text (-1: a random one for each request)"),
        Option("ignore_eos", ("--ignore-eos",), values.switch,
               "go on after an end of generation (off)", "on|off", const="on"),
    ),
    "Devices and memory": (
        Option("backend", ("--backend",), values.one_of(*BACKENDS),
               "refuse to run on anything else", "NAME"),
        Option("n_gpu_layers", ("--n-gpu-layers", "--gpu-layers", "-ngl"), values.layers,
               "layers to offload: a number, all, or auto (as many as fit the GPU)"),
        Option("device", ("--device", "-dev"), values.names,
               "devices to use: names as `worker version` shows them, numbers, or kind:number",
               "A,B"),
        Option("device", ("--cuda-device",), values.nth("cuda"), "the CUDA device of that number"),
        Option("device", ("--metal-device",), values.nth("metal"),
               "the Metal device of that number"),
        Option("device", ("--gpu-device",), values.nth("gpu"),
               "the GPU of that number, of any kind"),
        Option("rpc", ("--rpc",), values.servers,
               "llama.cpp RPC servers whose devices are used too; they know no key and no "
               "encryption and trust whoever reaches them: loopback or a closed net only",
               "HOST:PORT,..."),
        Option("cpu_moe", ("--n-cpu-moe", "-ncmoe"), values.integer(0, 10_000),
               "of so many layers, the first ones, the experts stay on the CPU (as few as fit the "
               "GPU)"),
        Option("cpu_moe", ("--cpu-moe", "-cmoe"), values.every_layer, "of all", "on|off",
               const="on"),
        Option("override_tensor", ("--override-tensor", "-ot"), values.placements,
               "device of the tensors whose names an expression matches, of whatever layer",
               "REGEX=DEVICE,..."),
        Option("tensor_split", ("--tensor-split", "-ts"), values.shares, "share of each device",
               "S,S"),
        Option("split_mode", ("--split-mode", "-sm"), values.one_of("none", "layer", "row"),
               "how to split over devices (layer)", "MODE"),
        Option("main_gpu", ("--main-gpu", "-mg"), values.integer(0, 255),
               "the device for split mode none"),
        Option("cache_type_k", ("--cache-type-k", "-ctk"), values.one_of(*CACHE_TYPES),
               "type of K (f16)", "TYPE"),
        Option("cache_type_v", ("--cache-type-v", "-ctv"), values.one_of(*CACHE_TYPES),
               "type of V (f16)", "TYPE"),
        Option("cache_ram", ("--cache-ram", "-cram"), values.integer(-1, _INT32),
               "MiB of host memory for the states of ended conversations; 0 keeps none (-1: fitted "
               "to what the machine has left)", "MIB"),
        Option("cache_dir", ("--cache-dir",), values.folder,
               "folder where they are also written, so that a worker that starts again finds them; "
               "as private as the prompts (none: nothing is written)", "DIR"),
        Option("slot_save_path", ("--slot-save-path",), values.folder,
               "folder for the states that POST /slots/N?action=save writes; as private as the "
               "prompts (none)", "DIR"),
        Option("cache_disk", ("--cache-disk",), values.integer(1, _INT32),
               "MiB for all models in it (8192, or half of the room on its disk)", "MIB"),
        Option("flash_attn", ("--flash-attn", "-fa"), values.one_of("on", "off", "auto"),
               "attention kernel: on, off, or auto, which on a CPU is chosen while it works "
               "(auto)", "MODE", const="on"),
        Option("mmap", ("--mmap",), values.switch,
               "map the file instead of reading it, which starts sooner (on without a GPU); who "
               "overwrites a mapped file in place kills the worker",
               "on|off", const=True),
        Option("mmap", ("--no-mmap",), values.opposite, "the opposite", "on|off", const=False),
        Option("mlock", ("--mlock",), values.switch,
               "keep the weights in memory, as far as the system's limit for that allows (off)",
               "on|off", const=True),
        Option("mmap", ("--load-mode", "-lm"), values.load_mode,
               "the same in llama-server's words: none, dio, auto or mmap", "MODE"),
    ),
    "Other than the file says": (
        Option("override_kv", ("--override-kv",), values.overrides,
               "what keys of the file shall say, where llama.cpp and the worker read them; may be "
               "given several times", "KEY=TYPE:VALUE", repeats=True),
        Option("rope_scaling", ("--rope-scaling",), values.one_of("none", "linear", "yarn"),
               "how a context longer than the trained one is read (as the file says)",
               "none|linear|yarn", env=("LLAMA_ARG_ROPE_SCALING_TYPE",)),
        Option("rope_scale", ("--rope-scale",), values.number(1e-3, 1e3),
               "how many times longer than the original it may be (as the file says)", "X"),
        Option("rope_scale", ("--rope-freq-scale",), values.inverse(1e-3, 1e3),
               "the same as 1 / --rope-scale", "X"),
        Option("rope_freq_base", ("--rope-freq-base",), values.number(1, 1e12),
               "base of the frequencies; the context may then be as long as --ctx-size (as the "
               "file says)", "X"),
        Option("yarn_orig_ctx", ("--yarn-orig-ctx",), values.integer(1, _INT32),
               "tokens of the original context (as the file says)"),
        Option("yarn_ext_factor", ("--yarn-ext-factor",), values.number(-1, 1e3),
               "YaRN: how much is extrapolated (-1: as usual)", "X"),
        Option("yarn_attn_factor", ("--yarn-attn-factor",), values.number(-1, 1e3),
               "YaRN: scale of attention (-1: as usual)", "X"),
        Option("yarn_beta_slow", ("--yarn-beta-slow",), values.number(-1, 1e6),
               "YaRN: alpha (-1: as usual)", "X"),
        Option("yarn_beta_fast", ("--yarn-beta-fast",), values.number(-1, 1e6),
               "YaRN: beta (-1: as usual)", "X"),
    ),
    "Log": (
        Option("log_format", ("--log-format",), values.one_of("console", "json"),
               "console or json (console)", "FORMAT", env=("LLORCH_LOG_FORMAT",)),
        Option("log_format", ("--log-jsonl",), values.switch_to("json", "console"),
               "the same as --log-format json", "on|off", const="on"),
        Option("log_file", ("--log-file",), values.nonempty,
               "file to which the log is appended too (none)", "FILE"),
        Option("otel", ("--otel",), values.switch,
               "send a span of each request by OpenTelemetry, to where the variables OTEL_... say; "
               "needs the packages of the extra otel (off)", "on|off", const=True),
        Option("verbose", ("--verbose", "-v"), values.switch, "also log what llama.cpp says (off)",
               "on|off", const=True),
    ),
}
# fmt: on

OPTIONS: tuple[Option, ...] = tuple(option for options in TOPICS.values() for option in options)
