"""Flags of llama-server and of the original worker that this worker does not have.

A flag is accepted where a caller sees no difference without it; one warning names all of them. A
flag that would change answers, or what is served, is refused: accepting it would be a lie. So are
llama-server's variables, which are named after the flags: LLAMA_ARG_HF_REPO is --hf-repo.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any

from worker import log
from worker.errors import UsageError
from worker.options import OPTIONS

# Accepted flags: those without a value, those with one, those that may have one.
ALONE = """
    --cont-batching -cb --no-cont-batching -nocb --no-context-shift
    --jinja --no-jinja --no-mmproj --no-mmproj-auto --no-mmproj-offload
    --no-ui-mcp-proxy --no-webui-mcp-proxy --no-agent -no-ag
    --offline --metrics --slots --no-slots --props
    --warmup --no-warmup --perf --no-perf --escape --no-escape -e
    --log-disable --log-verbose --log-prefix --no-log-prefix
    --log-timestamps --no-log-timestamps --log-jsonl --no-log-jsonl
    --cache-prompt --no-cache-prompt --kv-unified -kvu --no-kv-unified -no-kvu --swa-full
    --kv-offload -kvo --repack --no-repack -nr --no-host --op-offload --no-op-offload
    --check-tensors --mlock --prefill-assistant --spec-default
    --models-autoload --no-models-autoload --no-reasoning-preserve --reasoning-preserve
    --cors-credentials --no-cors-credentials --no-skip-chat-parsing
"""
WITH_VALUE = """
    --log-verbosity --verbosity -lv --log-file --log-prompts-dir
    --timeout -to --threads-http --sse-ping-interval --sleep-idle-seconds
    --cache-reuse --ctx-checkpoints --swa-checkpoints --checkpoint-every-n-tokens
    --slot-save-path --slot-prompt-similarity -sps --defrag-thold -dt
    --path --ui-config --webui-config --ui-config-file --webui-config-file --media-path
    --cors-methods --cors-headers
    --cpu-mask -C --cpu-range -Cr --cpu-strict --prio --poll
    --cpu-mask-batch -Cb --cpu-range-batch -Crb --cpu-strict-batch --prio-batch --poll-batch
    --numa --lazy-mode -lzm --moe-cache-mib --fit-target -fitt --fit-ctx -fitc --hf-token -hft
    --threads-draft -td --threads-batch-draft -tbd
    --gpu-layers-draft --n-gpu-layers-draft -ngld --device-draft -devd --ctx-size-draft -cd
    --cache-type-k-draft -ctkd --cache-type-v-draft -ctvd
    --draft-max --draft-n --draft-min --draft-n-min --draft-p-min --draft-p-split
    --spec-type --spec-draft-n-max --spec-draft-n-min --spec-draft-p-min --spec-draft-p-split
    --spec-draft-ngl --spec-draft-device --spec-draft-threads --spec-draft-threads-batch
    --spec-draft-type-k --spec-draft-type-v
    --spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match
    --max-tokens-in
"""
MAY_HAVE_VALUE = "--fit -fit --log-colors"

_IN_REQUEST = "Send it with each request."
_TEMPLATE = "Answers are read as the chat template says."
_ONE_MODEL = "One worker serves one model: give its file with --model."
_TEXT_ONLY = "This worker reads text only."
_GENERATES = "This worker continues texts; it has no embeddings."
_CONTEXT = "A sequence ends where its context is full; choose --ctx-size."
_PLACEMENT = "Place layers with --n-gpu-layers, --device and --tensor-split."
_AS_IN_FILE = "The model runs as its file describes it."
_PLAIN_HTTP = "This worker speaks plain HTTP at the root; put a proxy in front of it."

# Refused: the next step -> the flags.
REFUSED: dict[str, str] = {
    _TEMPLATE: "--reasoning-budget-message --no-prefill-assistant --skip-chat-parsing",
    _CONTEXT: "--context-shift --keep --grp-attn-n -gan --grp-attn-w -gaw",
    _AS_IN_FILE: """--control-vector
        --control-vector-scaled --control-vector-layer-range --override-kv --rope-scaling
        --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor
        --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast""",
    _TEXT_ONLY: """--mmproj -mm --mmproj-url -mmu --mmproj-auto --image-min-tokens
        --image-max-tokens --model-vocoder -mv --tts-use-guide-tokens""",
    _GENERATES: """--embedding --embeddings --rerank --reranking --pooling --attention
        --embd-normalize""",
    _IN_REQUEST: """--samplers --sampler-seq --sampling-seq --seed -s --temp --temperature --top-k
        --top-p --min-p --top-n-sigma --top-nsigma --typical --typical-p --xtc-probability
        --xtc-threshold --repeat-last-n --repeat-penalty --presence-penalty --frequency-penalty
        --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n
        --dry-sequence-breaker --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr
        --mirostat-ent --logit-bias -l --grammar --grammar-file --json-schema -j
        --json-schema-file -jf --ignore-eos --predict --n-predict -n --reverse-prompt -r
        --special -sp --adaptive-target --adaptive-decay --reasoning -rea --reasoning-effort
        --reasoning-budget""",
    _ONE_MODEL: """--hf-repo -hf -hfr --hf-file -hff --model-url -mu --docker-repo -dr --models-dir
        --models-preset --models-max""",
    _PLACEMENT: """--override-tensor -ot --cpu-moe -cmoe --n-cpu-moe -ncmoe --n-cpu-ffn -ncffn
        --no-kv-offload -nkvo""",
    _PLAIN_HTTP: "--api-prefix --ssl-key-file --ssl-cert-file --reuse-port",
    "Size the cache in cells with --ctx-size.": "--kv-cache-size-mb",
    "No tools run inside this worker.": """--tools --tools-runtime --mcp-servers-config
        --mcp-servers-json --agent -ag --ui-mcp-proxy --webui-mcp-proxy""",
}

_PREFIX = "LLAMA_ARG_"
_OFF = ("", "0", "false", "off", "no", "disabled")


class _Accept(argparse.Action):
    """Remembers the flag. It forgets the value, which may be a secret."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,  # noqa: ARG002
        option_string: str | None = None,
    ) -> None:
        namespace.foreign = [*getattr(namespace, "foreign", []), option_string]


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
    parser.add_argument(*ALONE.split(), action=_Accept, nargs=0, **hidden)
    parser.add_argument(*WITH_VALUE.split(), action=_Accept, **hidden)
    parser.add_argument(*MAY_HAVE_VALUE.split(), action=_Accept, nargs="?", **hidden)
    for hint, flags in REFUSED.items():
        parser.add_argument(*flags.split(), action=_Refuse, nargs="?", const=hint, **hidden)


def foreign_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Variables that mean nothing here. Raises UsageError for one that would change something."""
    known = {name for option in OPTIONS for name in option.variables}
    hints = {flag: hint for hint, flags in REFUSED.items() for flag in flags.split()}
    found = [name for name in environ if name.startswith(_PREFIX) and name not in known]
    for name in found:
        flag = f"--{name.removeprefix(_PREFIX).lower().replace('_', '-')}"
        if flag in hints and environ[name].lower() not in _OFF:
            raise UsageError(f"{name} is not supported.", hint=hints[flag])
    return found


def warn_of_foreign_options(arguments: argparse.Namespace) -> None:
    """Log one line with the flags and variables that were accepted and do nothing.

    Raises UsageError where a variable would change something.
    """
    named = [*dict.fromkeys(getattr(arguments, "foreign", [])), *foreign_variables()]
    if named:
        log.get("cli").warning("options that mean nothing here", options=" ".join(named))
