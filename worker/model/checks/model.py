"""Whether a header is that of a usable model; else a ModelFileError says what is wrong.

All codes of ModelFileError, by what they mean:

    no file         NOT_FOUND NOT_A_FILE DIRECTORY UNREADABLE CHANGED NOT_DOWNLOADED
    another file    EMPTY_FILE NOT_GGUF GIT_LFS_POINTER HTML_PAGE OLD_GGML SAFETENSORS
                    SAFETENSORS_DIR PYTORCH ONNX BIG_ENDIAN UNSUPPORTED_VERSION
    another GGUF    LORA_ADAPTER MMPROJ IMATRIX VOCAB_ONLY NO_TENSORS ENCODER_ONLY DRAFT_MODEL
                    ENCODER_DECODER NO_TOKENIZER DECISION_HEADS
    bytes           TRUNCATED TRAILING_BYTES COUNT_TOO_LARGE METADATA_TOO_LARGE BAD_ALIGNMENT
    keys            BAD_KEY KEY_STYLE DUPLICATE_KEY BAD_VALUE_TYPE BAD_BOOL BAD_UTF8
                    STRING_TOO_LONG ARRAY_TOO_LONG
    tensor table    BAD_TENSOR_NAME DUPLICATE_TENSOR BAD_SHAPE BAD_TENSOR_TYPE BAD_TENSOR_OFFSET
    values          MISSING_KEY WRONG_TYPE BAD_VALUE UNKNOWN_ARCHITECTURE
                    NO_QUANTIZATION_VERSION TEMPLATE_TOO_LONG
    weights         MISSING_TENSOR TENSOR_SHAPE TENSOR_LAYER TENSOR_TYPE VOCAB_MISMATCH
    tokenizer       UNKNOWN_TOKENIZER UNKNOWN_PRE_TOKENIZER BAD_TOKENS DUPLICATE_TOKEN
                    TOKEN_TOO_LONG BAD_SCORES BAD_TOKEN_TYPES BAD_MERGES BAD_CHARSMAP
                    BAD_BYTE_TOKEN NO_BOS
    split files     SPLIT_NAME SPLIT_MISSING SPLIT_MISMATCH NOT_FIRST_SPLIT
    quantising      BAD_IMATRIX
    adapters        NOT_ADAPTER ADAPTER_KIND ADAPTER_MISMATCH NOT_CONTROL_VECTOR NOT_PROJECTOR
                    PROJECTOR_MISMATCH
    worker check    NOT_FINITE WEIGHT_TOO_LARGE WRONG_CHECKSUM

The pinned llama.cpp decides what is valid. A rule is here for one of two reasons: native code would
abort on the file, or our sentence says more than llama.cpp's log.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from worker.gguf.fields import Fields
from worker.gguf.header import RECONVERT, Header, refuse
from worker.gguf.quant import ENCODINGS
from worker.model.architectures import DRAFTERS, EMBEDDERS, ENCODER_DECODERS, ENCODERS, KNOWN, newer
from worker.model.checks.graphs import check_graph
from worker.model.checks.hyperparameters import check_hyperparameters, check_sampling_defaults
from worker.model.checks.tensors import check_tensors
from worker.model.checks.tokenizer import check_tokenizer
from worker.model.decider import LABEL_READERS, decision_temperatures
from worker.model.tokenizer import NO_VOCABULARY

Purpose = Literal["generate", "serve", "draft", "inspect"]
"""The reason to open a model. `serve` also takes encoders, `draft` what only drafts, `inspect`
vocabularies too."""

# Where a drafter says how many elements the hidden states have that it reads.
_TARGET_WIDTHS = {
    "eagle3": ".target_hidden_size",
    "gemma4-assistant": ".embedding_length_out",
    "dflash": ".embedding_length",
}
_ARCHITECTURE = "general.architecture"
_NAME = re.compile(r"[a-z0-9_-]{1,64}")


def check(header: Header, purpose: Purpose = "generate") -> None:
    """Raise ModelFileError unless the model can be used for `purpose`."""
    fields = Fields(header, check_architecture(header))
    check_kind(fields, purpose)
    check_hyperparameters(fields)
    check_sampling_defaults(fields)
    decision_temperatures(fields)
    if purpose != "inspect" or "tokenizer.ggml.model" in fields:
        check_tokenizer(fields)
    if header.tensors:
        _check_quantization_version(fields)
        check_tensors(fields)
        check_graph(fields)


def check_architecture(header: Header) -> str:
    """The architecture's name. Raises ModelFileError where it is missing or unknown."""
    fields = Fields(header, "")
    name = fields.text(_ARCHITECTURE)
    if name is None:
        # An importance matrix has none, nor has a later file of a split model.
        check_kind(fields, "inspect")
        fields.refuse_missing(_ARCHITECTURE)
    if name in KNOWN or name in newer():
        return name
    shown = name[:64] if name[:64].isprintable() else repr(name[:64])
    raise refuse(
        "UNKNOWN_ARCHITECTURE",
        f"The architecture {shown} is not known to this llama.cpp.",
        at=header.offsets[_ARCHITECTURE],
        field=_ARCHITECTURE,
        got=name[:64],
        hint="Build a newer llama.cpp: `make install LLAMA_CPP=VERSION`."
        if _NAME.fullmatch(name)
        else RECONVERT,
    )


def check_kind(fields: Fields, purpose: Purpose) -> None:
    """Raise where the file is a GGUF, but no model for `purpose`."""
    keys, arch = fields.header.keys, fields.architecture
    kind = fields.word("general.type")
    if kind == "adapter" or "adapter.type" in keys:
        raise refuse(
            "LORA_ADAPTER",
            "This file is a LoRA adapter, not a model.",
            hint="Pass the base model, or merge both with llama-export-lora.",
        )
    if kind == "mmproj" or arch == "clip":
        raise refuse(
            "MMPROJ",
            "This file is the image or sound projector of a multimodal model.",
            hint="Pass the model that belongs to it; this with --mmproj.",
        )
    if kind == "imatrix" or any(key.startswith("imatrix.") for key in keys):
        raise refuse(
            "IMATRIX",
            "This file is an importance matrix for quantizing, not a model.",
            hint="Pass the model itself.",
        )
    if not arch or purpose == "inspect":
        return
    if not fields.header.tensors:
        if "tokenizer.ggml.tokens" in keys:
            raise refuse(
                "VOCAB_ONLY",
                "This file holds a vocabulary without a model.",
                got=0,
                hint="Pass the file with the weights.",
            )
        raise refuse(
            "NO_TENSORS",
            "This file holds no tensors.",
            got=0,
            hint="Pass the file with the weights.",
        )
    if arch in ENCODERS and (purpose in ("generate", "draft") or arch not in EMBEDDERS):
        raise refuse(
            "ENCODER_ONLY",
            f"{arch} models embed text and generate none.",
            got=arch,
            hint="Pass a model that generates text.",
        )
    if arch in ENCODER_DECODERS:
        raise refuse(
            "ENCODER_DECODER",
            f"{arch} models need an encoder pass, which is not served.",
            got=arch,
            hint="Pass a decoder-only model.",
        )
    if arch in DRAFTERS and purpose != "draft":
        raise refuse(
            "DRAFT_MODEL",
            f"{arch} models only draft tokens for another model, this one for {_target(fields)}.",
            got=arch,
            hint="Serve that model with it: `worker serve TARGET --draft-model "
            f"{Path(fields.header.path).name}`.",
        )
    decides = fields.word(".decision.type")
    if decides and decides not in LABEL_READERS:
        raise refuse(
            "DECISION_HEADS",
            f"{decides[:40]} decision models need heads that this llama.cpp lacks.",
            field=fields.full(".decision.type"),
            got=decides[:40],
            hint="Pass a chat model: it answers decisions too.",
        )
    looks_ahead = fields.get(".attention.causal") is False and arch not in DRAFTERS
    if looks_ahead and purpose in ("generate", "draft"):
        raise refuse(
            "ENCODER_ONLY",
            "This model's tokens look ahead, so it continues no text.",
            field=fields.full(".attention.causal"),
            got=False,
            limit=True,
            hint="Pass a decoder-only model.",
        )
    if fields.word("tokenizer.ggml.model") in NO_VOCABULARY:
        raise refuse(
            "NO_TOKENIZER",
            "This model has no tokenizer, so it cannot read text.",
            hint="Pass a file with a vocabulary.",
        )


def _check_quantization_version(fields: Fields) -> None:
    key = "general.quantization_version"
    quantized = any(ENCODINGS[tensor.type].quantized for tensor in fields.header.tensors)
    if quantized and key not in fields:
        raise refuse(
            "NO_QUANTIZATION_VERSION",
            f"The tensors are quantized and {key} is missing.",
            field=key,
            hint="Quantize the model again.",
        )


def _target(fields: Fields) -> str:
    """What a drafter drafts for, as far as its file says that."""
    if name := fields.word("general.base_model.0.name"):
        return name[:80]
    kind = "a Gemma 4 model" if fields.architecture == "gemma4-assistant" else "a model"
    width = fields.get(_TARGET_WIDTHS[fields.architecture])
    return f"{kind} of embedding length {width}" if isinstance(width, int) else kind
