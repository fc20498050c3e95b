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
    many     the flag may be given several times: the values are added up
    """

    field: str
    flags: tuple[str, ...]
    read: Callable[[str], Any]
    help: str
    metavar: str = "N"
    env: tuple[str, ...] = ()
    const: Any = None
    many: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables that set it; the first one that is set counts."""
        name = self.flags[0].lstrip("-").replace("-", "_").upper()
        return (f"LLAMA_ARG_{name}", *self.env)


_INT32 = 2**31 - 1

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
        Option("alias", ("--alias", "-a", "--served-model-name"), values.name,
               "model id in /v1/models", "NAME"),
        Option("model_ref", ("--model-ref",), values.name,
               "the manager's name for the model, reported back", "REF"),
    ),
    "Service": (
        Option("host", ("--host",), values.bare_host, "address to listen on (127.0.0.1)", "ADDR"),
        Option("port", ("--port",), values.integer(0, 65535),
               "port to listen on; 0 takes a free one (8080)"),
        Option("api_key", ("--api-key",), keys.keys,
               "bearer key that all paths but /health ask for, or several, separated by commas; "
               "process lists show it until the worker has overwritten it: better a file or a "
               "variable", "KEY", env=("LLAMA_API_KEY", "LLORCH_API_TOKEN")),
        Option("api_key_file", ("--api-key-file",), keys.key_file,
               "file of such keys, one a line, # begins a comment; read again at SIGHUP", "FILE"),
        Option("cors", ("--cors", "--cors-origins"), values.origins,
               "pages of these origins, such as https://chat.example, may read answers (none)",
               "A,B"),
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
        Option("parallel", ("--parallel", "-np", "--max-num-seqs"), values.integer(1, 256),
               "sequences decoded at once (4, fewer where memory is short)",
               env=("LLAMA_ARG_N_PARALLEL",)),
        Option("inference_timeout", ("--inference-timeout-sec", "--inference-timeout"),
               values.number(0.1, 86_400), "seconds that a job may take (300)", "SECONDS"),
        Option("max_tokens_out", ("--max-tokens-out",), values.integer(1, _INT32),
               "tokens that a job may ask for (2048)"),
        Option("max_stall_ms", ("--max-stall-ms",), values.integer(1, 60_000),
               "milliseconds that reading a prompt may make running streams wait (400)"),
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
               "all requests that choose nothing (none)", "FILE[=NAME[:SCALE]]", many=True),
        Option("lora", ("--lora-scaled",), values.scaled_adapters,
               "the same for all requests that choose nothing, with its scale", "FILE:SCALE",
               many=True),
        Option("lora_init_without_apply", ("--lora-init-without-apply",), values.switch,
               "no adapter counts for requests that choose nothing, until /lora-adapters is told "
               "so (off)", "on|off", const=True),
        Option("chat_template", ("--chat-template",), values.nonempty,
               "chat template: the name of one of the file's, chatml, llama3, phi3, zephyr, gemma, "
               "or Jinja (the file's own)", "NAME"),
        Option("chat_template_file", ("--chat-template-file",), values.text_file,
               "file that holds the chat template; it counts before --chat-template", "FILE"),
        Option("chat_template_kwargs", ("--chat-template-kwargs",), values.json_object,
               "variables of the chat template where a request does not name them, such as "
               "'{\"enable_thinking\": false}' (none)", "JSON",
               env=("LLAMA_CHAT_TEMPLATE_KWARGS",)),
        Option("draft_model", ("--draft-model", "--model-draft", "-md", "--spec-draft-model"),
               values.nonempty,
               "smaller model of the same vocabulary, a file or a name, that guesses tokens (none)",
               "FILE", env=("LLAMA_ARG_SPEC_DRAFT_MODEL",)),
        Option("draft", ("--draft",), values.one_of("none", "ngram", "model", "mtp", "both"),
               "who guesses tokens, which are verified in the same step: the text itself, the "
               "draft model, the file's own heads, or text and model or heads (model where there "
               "is one, else none)", "none|ngram|model|mtp|both"),
        Option("threads", ("--threads", "-t"), values.integer(1, 4096),
               "compute threads (as many as are fastest, at most the CPUs this process may use)"),
        Option("threads_batch", ("--threads-batch", "-tb"), values.integer(1, 4096),
               "compute threads for prompts (as --threads)"),
        Option("batch_size", ("--batch-size", "-b"), values.integer(1, 65536),
               "tokens in a step, at most (512)", env=("LLAMA_ARG_BATCH",)),
        Option("ubatch_size", ("--ubatch-size", "-ub"), values.integer(1, 65536),
               "tokens computed at once inside a step (512)", env=("LLAMA_ARG_UBATCH",)),
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
        Option("mmap", ("--load-mode", "-lm"), values.load_mode,
               "the same in llama-server's words: none, dio, auto or mmap", "MODE"),
    ),
    "Log": (
        Option("log_format", ("--log-format",), values.one_of("console", "json"),
               "console or json (console)", "FORMAT", env=("LLORCH_LOG_FORMAT",)),
        Option("otel", ("--otel",), values.switch,
               "send a span of each request by OpenTelemetry, to where the variables OTEL_... say; "
               "needs the packages of the extra otel (off)", "on|off", const=True),
        Option("verbose", ("--verbose", "-v"), values.switch, "also log what llama.cpp says (off)",
               "on|off", const=True),
    ),
}
# fmt: on

OPTIONS: tuple[Option, ...] = tuple(option for options in TOPICS.values() for option in options)
