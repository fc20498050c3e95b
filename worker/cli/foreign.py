"""Flags of llama-server and of the original worker that are not options of this worker.

A flag is accepted if callers see no difference without it; a warning names it and the reason. A
flag that would change answers, or what is served, is rejected. The same holds for llama-server's
variables, which are named after the flags: LLAMA_ARG_LORA is --lora.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from worker import log
from worker.errors import UsageError
from worker.settings import OPTIONS

# Accepted without an effect: the reason -> the flags. `=`: takes a value, `?`: may take one.
NEEDLESS: dict[str, str] = {
    "this is always on here": """
        --cont-batching -cb --no-context-shift --jinja --cache-prompt --kv-unified -kvu
        --no-kv-unified -no-kvu --swa-full --metrics --slots --props --warmup --no-prefill-assistant
        --escape -e --log-prefix --log-timestamps --kv-offload -kvo --repack --op-offload
        --no-agent -no-ag --no-ui-mcp-proxy --no-webui-mcp-proxy --no-reasoning-preserve
        --no-cors-credentials --no-skip-chat-parsing --cache-idle-slots --no-log-jsonl""",
    "it changes no answer, and the worker fits time and memory by itself": """
        --no-cont-batching -nocb --no-cache-prompt --no-warmup --perf --no-perf --no-repack -nr
        --no-host --no-op-offload --no-cache-idle-slots --fit? -fit? --fit-target= -fitt=
        --fit-ctx= -fitc= --ctx-checkpoints= -ctxcp= --swa-checkpoints=
        --checkpoint-every-n-tokens= --checkpoint-min-step= -cms= --slot-prompt-similarity= -sps=
        --defrag-thold= -dt= --lazy-mode= -lzm= --moe-cache-mib= --backend-sampling -bs
        --spec-draft-backend-sampling --no-spec-draft-backend-sampling
        --mtmd-batch-max-tokens= --no-escape""",
    "tokens after the first difference are recomputed; the cache is never shifted": """
        --cache-reuse=""",
    "the operating system places threads and pages": """
        --cpu-mask= -C= --cpu-range= -Cr= --cpu-strict= --prio= --poll= --cpu-mask-batch= -Cb=
        --cpu-range-batch= -Crb= --cpu-strict-batch= --prio-batch= --poll-batch= --numa=
        --cpu-mask-draft= -Cd= --cpu-range-draft= -Crd= --cpu-strict-draft= --prio-draft=
        --poll-draft= --cpu-mask-batch-draft= -Cbd= --cpu-range-batch-draft= -Crbd=
        --cpu-strict-batch-draft= --prio-batch-draft= --poll-batch-draft= --spec-draft-cpu-mask=
        --spec-draft-cpu-range= --spec-draft-cpu-strict= --spec-draft-prio= --spec-draft-poll=
        --spec-draft-cpu-mask-batch= --spec-draft-cpu-range-batch= --spec-draft-cpu-strict-batch=
        --spec-draft-prio-batch= --spec-draft-poll-batch=""",
    "the draft model uses the model's threads, devices and cache types": """
        --threads-draft= -td= --threads-batch-draft= -tbd= --gpu-layers-draft=
        --n-gpu-layers-draft= -ngld= --device-draft= -devd= --ctx-size-draft= -cd=
        --cache-type-k-draft= -ctkd= --cache-type-v-draft= -ctvd= --spec-draft-ngl=
        --spec-draft-device= --spec-draft-threads= --spec-draft-threads-batch=
        --spec-draft-type-k= --spec-draft-type-v= --spec-draft-cpu-moe -cmoed --cpu-moe-draft
        --spec-draft-n-cpu-moe= --spec-draft-ncmoe= -ncmoed= --n-cpu-moe-draft=
        --spec-draft-override-tensor= -otd= --override-tensor-draft=""",
    "the length of drafts follows measured costs, and changes no answer": """
        --draft-min= --draft-n-min= --draft-p-split= --spec-draft-n-min= --spec-draft-p-split=
        --spec-ngram-mod-n-min= --spec-ngram-mod-n-match= --spec-ngram-simple-size-n=
        --spec-ngram-simple-min-hits= --spec-ngram-map-k-size-n= --spec-ngram-map-k-min-hits=
        --spec-ngram-map-k4v-size-n= --spec-ngram-map-k4v-min-hits= --spec-ngram-size-n=
        --spec-ngram-size-m= --spec-ngram-min-hits=""",
    "draft tokens are copied from the text at hand, and no file is needed": """
        --lookup-cache-static= -lcs= --lookup-cache-dynamic= -lcd=""",
    "videos are not accepted": """
        --video-fps= --video-timestamp-interval= --video-ffmpeg-dir=""",
    "the log has one layout and never holds prompts; see --log-format and --log-level": """
        --log-disable --log-verbose --no-log-prefix --no-log-timestamps --log-prompts-dir=
        --log-colors?""",
    "see --receive-timeout and --send-timeout": """
        --timeout= -to= --threads-http= --sse-ping-interval=""",
    "files are always checked before they load; `worker check --deep` reads the weights": """
        --check-tensors""",
    "chat templates are Jinja, and get earlier reasoning unchanged": """
        --no-jinja --reasoning-preserve""",
    "/slots shows no prompts": "--no-slots",
    "an allowed origin may use all methods and headers, and cookies are not used": """
        --cors-methods= --cors-headers= --cors-credentials""",
    "the web UI at / has its own settings": """
        --ui-config= --webui-config= --ui-config-file= --webui-config-file=""",
    "one worker serves one model": "--models-autoload --no-models-autoload",
    "a prompt may be as long as the context": "--max-tokens-in=",
    "an embedding model serves embeddings anyway; for others use --pooling": """
        --embedding --embeddings""",
}

_IN_REQUEST = "Send it with each request."
_ONE_MODEL = "One worker serves one model: name its file, or use --hf-repo."
_PROJECTOR_FILE = "Download the file and name it with --mmproj."
_ROWS_OF_FILE = "The projector's file decides how many embeddings an image becomes."
_TEXT_ONLY = "This worker generates text only."
_AS_TRAINED = "The model's file decides whether attention is causal."
_CONTEXT = (
    "The worker never shifts the context: a sequence ends when its context is full. Choose "
    "--ctx-size."
)
_PLACEMENT = "Place layers with --n-gpu-layers, --device and --tensor-split."
_PLAIN_HTTP = (
    "This worker serves plain HTTP: put a TLS proxy in front of it, such as "
    "`caddy reverse-proxy --from HOST --to 127.0.0.1:8080`."
)

# Rejected: the next step -> the flags.
REFUSED: dict[str, str] = {
    "The chat template decides how answers are parsed.": "--skip-chat-parsing --spm-infill",
    "Set continue_final_message in a request to continue its last message.": "--prefill-assistant",
    _CONTEXT: "--context-shift --keep --grp-attn-n -gan --grp-attn-w -gaw",
    _PROJECTOR_FILE: "--mmproj-url -mmu",
    _ROWS_OF_FILE: "--image-min-tokens --image-max-tokens",
    _TEXT_ONLY: "--model-vocoder -mv --tts-use-guide-tokens",
    _AS_TRAINED: "--attention",
    _IN_REQUEST: "--reverse-prompt -r --special -sp --embd-normalize --dry-sequence-breaker",
    _ONE_MODEL: """--model-url -mu --docker-repo -dr --models-dir --models-preset --models-max""",
    _PLACEMENT: "--n-cpu-ffn -ncffn --no-kv-offload -nkvo",
    _PLAIN_HTTP: "--ssl-key-file --ssl-cert-file",
    "Start another worker on another port.": "--reuse-port",
    "The web UI at / cannot be replaced; --no-page turns it off.": "--path",
    "Set the size of the cache in cells with --ctx-size.": """
        --kv-cache-size-mb --kv-unified-per-slot""",
    "Choose the model's devices with --device, or --no-mmproj-offload.": "--mmproj-device -mmdev",
    "`worker bench` measures with real text.": "--spec-synth-len --spec-synth-rates",
    "See `worker version`.": "--list-devices",
    "See `worker pull --list`.": "--cache-list -cl",
    "See `worker completion`.": "--completion-bash",
    "See `worker serve --help`.": "--usage",
    "The worker runs no tools.": """--tools --tools-runtime --mcp-servers-config
        --mcp-servers-json --agent -ag --ui-mcp-proxy --webui-mcp-proxy""",
}

_QWEN = "ggml-org/Qwen2.5-Coder-{}-Q8_0-GGUF"
_FIM = "--port 8012 -b 1024 -ub 1024 -c 0"
_GPT_OSS = "--port 8013 -ub 2048 -b 32768 -np 2 -c 262144 --temp 1 --top-p 1 --top-k 0 --min-p 0.01"
# llama-server's names of models on the Hub with options -> these options.
PRESETS: dict[str, str] = {
    "--embd-gemma-default": "-hf ggml-org/embeddinggemma-300M-qat-q4_0-GGUF:Q4_0 --port 8011 "
    "-b 2048 -ub 2048 -np 32 -c 65536",
    "--fim-qwen-1.5b-default": f"-hf {_QWEN.format('1.5B')}:Q8_0 {_FIM}",
    "--fim-qwen-3b-default": f"-hf {_QWEN.format('3B')}:Q8_0 {_FIM}",
    "--fim-qwen-7b-default": f"-hf {_QWEN.format('7B')}:Q8_0 {_FIM}",
    "--fim-qwen-7b-spec": f"-hf {_QWEN.format('7B')}:Q8_0 -hfd {_QWEN.format('0.5B')}:Q8_0 {_FIM}",
    "--fim-qwen-14b-spec": f"-hf {_QWEN.format('14B')}:Q8_0 -hfd {_QWEN.format('0.5B')}:Q8_0 "
    f"{_FIM}",
    "--fim-qwen-30b-default": f"-hf ggml-org/Qwen3-Coder-30B-A3B-Instruct-Q8_0-GGUF:Q8_0 {_FIM}",
    "--gpt-oss-20b-default": f"-hf ggml-org/gpt-oss-20b-GGUF {_GPT_OSS}",
    "--gpt-oss-120b-default": f"-hf ggml-org/gpt-oss-120b-GGUF {_GPT_OSS}",
    "--vision-gemma-4b-default": "-hf ggml-org/gemma-3-4b-it-qat-GGUF --port 8014",
    "--vision-gemma-12b-default": "-hf ggml-org/gemma-3-12b-it-qat-GGUF --port 8014",
}

_PREFIX = "LLAMA_ARG_"
_OFF = ("", "0", "false", "off", "no", "disabled")


class _Accept(argparse.Action):
    """Remembers the flag and, as its `const`, why it needs nothing. It forgets the value, which may
    be a secret."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,  # noqa: ARG002
        option_string: str | None = None,
    ) -> None:
        namespace.foreign = [*getattr(namespace, "foreign", []), (option_string, self.const)]


class _Refuse(argparse.Action):
    """Raises UsageError; its `const` is the next step."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,  # noqa: ARG002
        values: str | Sequence[Any] | None,  # noqa: ARG002
        option_string: str | None = None,
    ) -> None:
        raise UsageError(f"{option_string} is not supported.", hint=self.const)


def with_presets(words: Sequence[str]) -> list[str]:
    """The words, with what a preset stands for in its place."""
    made = ([word] if word not in PRESETS else PRESETS[word].split() for word in words)
    return [*itertools.chain.from_iterable(made)]


def add_foreign_flags(parser: argparse.ArgumentParser) -> None:
    """Let `parser` understand all these flags. Its help does not mention them."""
    hidden: dict[str, Any] = {
        "dest": argparse.SUPPRESS,
        "default": argparse.SUPPRESS,
        "help": argparse.SUPPRESS,
    }
    for why, flags in NEEDLESS.items():
        for flag in flags.split():
            name = flag.rstrip("=?")
            nargs = {"": 0, "=": None, "?": "?"}[flag[len(name) :]]
            parser.add_argument(name, action=_Accept, nargs=nargs, const=why, **hidden)
    for hint, flags in REFUSED.items():
        parser.add_argument(*flags.split(), action=_Refuse, nargs="?", const=hint, **hidden)


def foreign_variables(environ: Mapping[str, str] = os.environ) -> list[tuple[str, str]]:
    """Variables that are not needed here, and why. Raises UsageError for one that would change
    something."""
    known = {name for option in OPTIONS for name in option.variables}
    hints = {flag: hint for hint, flags in REFUSED.items() for flag in flags.split()}
    needless = {flag.rstrip("=?"): why for why, flags in NEEDLESS.items() for flag in flags.split()}
    found: list[tuple[str, str]] = []
    for name in environ:
        if not name.startswith(_PREFIX) or name in known:
            continue
        flag = f"--{name.removeprefix(_PREFIX).lower().replace('_', '-')}"
        is_off = environ[name].lower() in _OFF
        if flag in hints and not is_off:
            raise UsageError(f"{name} is not supported.", hint=hints[flag])
        found.append((name, needless.get(flag, "it is off" if is_off else "it is not known")))
    return found


def warn_of_foreign_options(arguments: argparse.Namespace) -> None:
    """Log the flags and variables that were accepted and do nothing: a line for each reason.

    Raises UsageError where a variable would change something.
    """
    named: dict[str, list[str]] = {}
    for name, why in dict.fromkeys([*getattr(arguments, "foreign", []), *foreign_variables()]):
        named.setdefault(why, []).append(name)
    for why, names in named.items():
        log.get("cli").warning("options ignored", options=" ".join(names), why=why)
