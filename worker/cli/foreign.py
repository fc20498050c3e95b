"""Flags of llama-server and of the original worker that this worker does not have.

A flag is accepted where a caller sees no difference without it; a warning names it and says why. A
flag that would change answers, or what is served, is refused: accepting it would be a lie. So are
llama-server's variables, which are named after the flags: LLAMA_ARG_LORA is --lora.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any

from worker import log
from worker.errors import UsageError
from worker.settings import OPTIONS

# Accepted, and nothing is done: why nothing need be -> the flags. Behind `=` stands a value, behind
# `?` may stand one.
NEEDLESS: dict[str, str] = {
    "it is always so here": """
        --cont-batching -cb --no-context-shift --jinja --cache-prompt --kv-unified -kvu
        --no-kv-unified -no-kvu --swa-full --metrics --slots --props --warmup --no-prefill-assistant
        --escape -e --log-prefix --log-timestamps --kv-offload -kvo --repack --op-offload
        --no-agent -no-ag --no-ui-mcp-proxy --no-webui-mcp-proxy --no-reasoning-preserve
        --no-cors-credentials --no-skip-chat-parsing --cache-idle-slots --no-log-jsonl""",
    "it would change no answer, and what costs time and memory is measured and fitted here": """
        --no-cont-batching -nocb --no-cache-prompt --no-warmup --perf --no-perf --no-repack -nr
        --no-host --no-op-offload --no-cache-idle-slots --fit? -fit? --fit-target= -fitt=
        --fit-ctx= -fitc= --ctx-checkpoints= -ctxcp= --swa-checkpoints=
        --checkpoint-every-n-tokens= --checkpoint-min-step= -cms= --slot-prompt-similarity= -sps=
        --defrag-thold= -dt= --lazy-mode= -lzm= --moe-cache-mib= --backend-sampling -bs
        --spec-draft-backend-sampling --no-spec-draft-backend-sampling""",
    "what stands behind a change is read again: moved, it would answer from text that is gone": """
        --cache-reuse=""",
    "the system places threads and pages": """
        --cpu-mask= -C= --cpu-range= -Cr= --cpu-strict= --prio= --poll= --cpu-mask-batch= -Cb=
        --cpu-range-batch= -Crb= --cpu-strict-batch= --prio-batch= --poll-batch= --numa=""",
    "what guesses tokens has the threads, devices and cell types of the model": """
        --threads-draft= -td= --threads-batch-draft= -tbd= --gpu-layers-draft=
        --n-gpu-layers-draft= -ngld= --device-draft= -devd= --ctx-size-draft= -cd=
        --cache-type-k-draft= -ctkd= --cache-type-v-draft= -ctvd= --spec-draft-ngl=
        --spec-draft-device= --spec-draft-threads= --spec-draft-threads-batch=
        --spec-draft-type-k= --spec-draft-type-v=""",
    "a guess is as long as pays, by measured costs, and changes no answer": """
        --draft-min= --draft-n-min= --draft-p-split= --spec-draft-n-min= --spec-draft-p-split=
        --spec-ngram-mod-n-min= --spec-ngram-mod-n-match= --spec-ngram-simple-size-n=
        --spec-ngram-simple-min-hits= --spec-ngram-map-k-size-n= --spec-ngram-map-k-min-hits=
        --spec-ngram-map-k4v-size-n= --spec-ngram-map-k4v-min-hits=""",
    "the log has one form, which --log-format and --verbose change, and never holds prompts": """
        --log-disable --log-verbose --no-log-prefix --no-log-timestamps --log-verbosity=
        --verbosity= -lv= --log-prompts-dir= --log-colors?""",
    "connections have limits of their own, see --receive-timeout and --send-timeout": """
        --timeout= -to= --threads-http= --sse-ping-interval=""",
    "files are checked before they are loaded, and by `worker check --deep`": "--check-tensors",
    "templates are Jinja, and get past thoughts as they are": "--no-jinja --reasoning-preserve",
    "/slots shows no prompts": "--no-slots",
    "a page whose origin is named may use all methods and headers, and cookies count nowhere": """
        --cors-methods= --cors-headers= --cors-credentials""",
    "the page at / has its own settings": """
        --ui-config= --webui-config= --ui-config-file= --webui-config-file=""",
    "one worker serves one model": "--models-autoload --no-models-autoload",
    "a prompt may be as long as the context": "--max-tokens-in=",
    "an embedding model makes vectors anyway, and one that writes does with --pooling": """
        --embedding --embeddings""",
}

_IN_REQUEST = "Send it with each request."
_TEMPLATE = "Answers are read as the chat template says."
_ONE_MODEL = "One worker serves one model: give its file with --model, or --hf-repo."
_PROJECTOR_FILE = "Download the file, and name it with --mmproj."
_ROWS_OF_FILE = "A picture becomes as many vectors as the projector's file says."
_TEXT_ONLY = "This worker writes text only."
_AS_TRAINED = "Tokens look ahead, or do not, as the model's file says."
_CONTEXT = (
    "A shifted context answers from text that it no longer has: a sequence ends where its context "
    "is full; choose --ctx-size."
)
_PLACEMENT = "Place layers with --n-gpu-layers, --device and --tensor-split."
_PLAIN_HTTP = (
    "This worker speaks plain HTTP: put a proxy that speaks TLS in front of it, such as "
    "`caddy reverse-proxy --from HOST --to 127.0.0.1:8080`."
)

# Refused: the next step -> the flags.
REFUSED: dict[str, str] = {
    _TEMPLATE: "--skip-chat-parsing --spm-infill",
    "A last message of the assistant goes on where continue_final_message says so.": """
        --prefill-assistant""",
    _CONTEXT: "--context-shift --keep --grp-attn-n -gan --grp-attn-w -gaw",
    _PROJECTOR_FILE: "--mmproj-url -mmu",
    _ROWS_OF_FILE: "--image-min-tokens --image-max-tokens",
    _TEXT_ONLY: "--model-vocoder -mv --tts-use-guide-tokens",
    _AS_TRAINED: "--attention",
    _IN_REQUEST: """--logit-bias -l --grammar --grammar-file --json-schema -j --json-schema-file
        -jf --reverse-prompt -r --special -sp --embd-normalize""",
    _ONE_MODEL: """--model-url -mu --docker-repo -dr --models-dir --models-preset --models-max""",
    _PLACEMENT: "--n-cpu-ffn -ncffn --no-kv-offload -nkvo",
    _PLAIN_HTTP: "--ssl-key-file --ssl-cert-file",
    "Start another worker on another port.": "--reuse-port",
    "The page at / is the worker's own; --no-page switches it off.": "--path",
    "Size the cache in cells with --ctx-size.": "--kv-cache-size-mb",
    "No tools run inside this worker.": """--tools --tools-runtime --mcp-servers-config
        --mcp-servers-json --agent -ag --ui-mcp-proxy --webui-mcp-proxy""",
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


def add_foreign_flags(parser: argparse.ArgumentParser) -> None:
    """Let `parser` understand all these flags. Its help does not mention them."""
    hidden: dict[str, Any] = {
        "dest": argparse.SUPPRESS, "default": argparse.SUPPRESS, "help": argparse.SUPPRESS,
    }  # fmt: skip
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
        log.get("cli").warning("options that need nothing here", options=" ".join(names), why=why)
