"""Header -> ModelConfig, the typed config of a model."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

import msgspec

from worker.errors import ModelFileError, UsageError
from worker.gguf.fields import Fields
from worker.gguf.header import Header, ModelFile
from worker.gguf.quant import Share, bits_per_weight, label_of, mix_of
from worker.gguf.splits import open_header
from worker.model.architectures import DRAFTERS, ENCODER_DECODERS, ENCODERS
from worker.model.checks.model import Purpose, check
from worker.model.decider import DECISION_TEMPLATE, decision_temperatures
from worker.model.hyperparameters import (
    ExpertConfig,
    RecurrentConfig,
    RopeConfig,
    SamplingDefaults,
    expert_config,
    first_number,
    recurrent_config,
    rope_config,
    sampling_defaults,
)
from worker.model.overrides import NO_WISHES, Override, Wishes, override
from worker.model.tokenizer import TokenizerConfig, tokenizer_config
from worker.model.vectors import VectorConfig, vector_config

Kind = Literal["decoder", "encoder", "encoder-decoder", "vocabulary"]
_CARD = "worker.card."
_BLOCK = 16  # as llama.cpp has it
# Their rows are looked up. Heads that guess tokens may have embeddings of their own.
_LOOKED_UP = ("embd.weight", "token_types.weight", "embed_tokens.weight")
_LAYER = re.compile(r"(?:enc\.|dec\.)?blk\.(\d{1,6})\.")
_EXPERTS = re.compile(r"blk\.(\d{1,6})\.ffn_\w+exps\.")
_EMBEDDINGS = ("token_embd.weight", "output.weight", "per_layer_token_embd.weight")


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is, read from its file or files.

    context, trained_context       tokens that positions reach, and those that the file says
    heads, kv_heads, feed_forward  one number for each layer; 0: this layer has none of them, as in
                                   hybrid and recurrent models
    key_length, value_length       elements of one head's key and value
    n_params, size_bytes           elements and bytes of all tensors
    matrix_bytes                   those of matrices that rows are multiplied with, by encoding;
                                   neither experts nor what rows are looked up in
    layer_bytes                    those of each layer's tensors
    expert_bytes                   those of each layer's experts; empty: there are none
    overrides                      keys that the file does not say so
    decision_type                  the family of a model that was trained for decisions
    target_layers, target_width    of a drafter: layers whose inputs it reads, elements of each
    block_size                     rows of one that guesses a block at once; the first is known
    decision_temperatures          that it was calibrated with: by type of question, and number of
                                   options

    Of a vocabulary without a model all sizes but `vocab_size` may be 0.
    """

    architecture: str
    kind: Kind
    name: str | None
    description: str | None
    license: str | None
    size_label: str | None
    card: dict[str, str | float | int]
    files: tuple[ModelFile, ...]

    layers: int
    embedding: int
    context: int
    trained_context: int
    vocab_size: int
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    feed_forward: tuple[int, ...]
    key_length: int
    value_length: int
    key_length_swa: int
    value_length_swa: int
    kv_lora_rank: int
    q_lora_rank: int
    key_length_mla: int
    value_length_mla: int
    sliding_window: int
    sliding_pattern: tuple[int, ...]
    shared_kv_layers: int
    nextn_layers: int
    causal: bool
    norm_epsilon: float | None
    rope: RopeConfig
    experts: ExpertConfig | None
    recurrent: RecurrentConfig | None

    n_params: int
    n_embedding_params: int
    size_bytes: int
    matrix_bytes: dict[str, int]
    layer_bytes: tuple[int, ...]
    expert_bytes: tuple[int, ...]
    bits_per_weight: float
    bits_per_weight_without_embeddings: float
    file_type: int | None
    mix: dict[str, Share]
    quant: str

    vectors: VectorConfig
    tokenizer: TokenizerConfig | None
    sampling: SamplingDefaults
    overrides: tuple[Override, ...] = ()
    decision_type: str | None = None
    target_layers: tuple[int, ...] = ()
    target_width: int = 0
    block_size: int = 0
    decision_temperatures: dict[str, float] = {}

    @property
    def path(self) -> str:
        """The first or only file."""
        return self.files[0].path

    @property
    def decision_form(self) -> str | None:
        """The template by which a model for decisions writes its questions; None: the worker's own
        prompts ask it."""
        named = self.tokenizer.chat_templates if self.tokenizer else {}
        return (named.get(DECISION_TEMPLATE) or None) if self.decision_type else None

    @property
    def only_embeds(self) -> bool:
        """Whether it makes vectors or scores of texts and writes none."""
        if self.kind != "decoder":
            return self.kind == "encoder"
        return not self.causal or self.vectors.pooling not in (None, "none")

    @property
    def does(self) -> str:
        if not self.only_embeds:
            return "writes text"
        ranks = self.vectors.pooling == "rank"
        return f"{'scores texts' if ranks else 'embeds texts'} and writes none"

    @property
    def task(self) -> str:
        """What it is and what for, as a part of a sentence."""
        return f"is a {self.architecture} model that {self.does}"

    def is_sliding(self, layer: int) -> bool:
        """Whether the file marks `layer` as one with a sliding window."""
        pattern = self.sliding_pattern
        if len(pattern) == 1:
            return layer % pattern[0] < pattern[0] - 1 if pattern[0] else True
        return bool(pattern[layer]) if layer < len(pattern) else False

    def head_lengths(self, layer: int) -> tuple[int, int]:
        """Elements of a key and a value of one head."""
        if self.is_sliding(layer):
            return self.key_length_swa, self.value_length_swa
        return self.key_length, self.value_length

    @property
    def max_heads(self) -> int:
        """Attention heads of the widest layer."""
        return max(self.heads, default=0)

    @property
    def max_kv_heads(self) -> int:
        """Key/value heads of the widest layer."""
        return max(self.kv_heads, default=0)


def load_config(
    path: str | os.PathLike[str],
    *,
    purpose: Purpose = "generate",
    wishes: Wishes = NO_WISHES,
) -> ModelConfig:
    """The typed config of the model at `path`, with all its split files.

    For the purpose `generate` a model that cannot continue a text is refused, for `serve` one that
    makes no vectors of it either; `inspect` reads vocabularies too. Raises ModelFileError.

    wishes: count before what the file says. Raises UsageError for those that cannot be.
    """
    written = open_header(path)
    overrides = wishes.overrides(written)
    header = override(written, overrides)
    try:
        check(header, purpose)
    except ModelFileError as error:
        if not wishes.keys:
            raise
        raise UsageError(
            f"With --override-kv the file cannot be: {error.message}",
            hint="Leave out the key that it names.",
        ) from error
    config = config_of(header)
    trained = Fields(written, config.architecture).count(".context_length") or 0
    return msgspec.structs.replace(
        config, trained_context=trained, overrides=tuple(overrides.items())
    )


def config_of(header: Header) -> ModelConfig:
    """The typed config of a header that passed the checks."""
    architecture = header.keys.get("general.architecture")
    fields = Fields(header, architecture if isinstance(architecture, str) else "")
    if not fields.architecture:
        fields.refuse_missing("general.architecture")
    count = fields.count
    layers = count(".block_count") or 0
    embedding = count(".embedding_length") or 0
    context = count(".context_length") or 0
    # As in llama.cpp: without the key there are no heads, and as many KV heads as heads.
    heads = fields.per_layer(".attention.head_count", layers) or (0,) * layers
    kv_heads = fields.per_layer(".attention.head_count_kv", layers) or heads
    head_dim = embedding // heads[0] if heads and heads[0] else 0
    key_length = count(".attention.key_length") if head_dim else 0
    value_length = count(".attention.value_length") if head_dim else 0
    key_length = head_dim if key_length is None else key_length
    value_length = head_dim if value_length is None else value_length
    key_swa = count(".attention.key_length_swa")
    value_swa = count(".attention.value_length_swa")
    tokenizer = tokenizer_config(fields) if "tokenizer.ggml.model" in fields else None
    vocab_size = tokenizer.vocab_size if tokenizer else count(".vocab_size") or 0
    n_params = sum(tensor.elements for tensor in header.tensors)
    n_bytes = sum(tensor.nbytes for tensor in header.tensors)
    embeddings = [tensor for tensor in header.tensors if tensor.name in _EMBEDDINGS]
    n_embedding = sum(tensor.elements for tensor in embeddings)
    file_type = count("general.file_type")
    mix = mix_of((tensor.type, tensor.elements, tensor.nbytes) for tensor in header.tensors)
    matrices = (
        (tensor.type, tensor.elements, tensor.nbytes)
        for tensor in header.tensors
        if tensor.is_matrix and not tensor.name.endswith(_LOOKED_UP)
    )
    causal = fields.flag(".attention.causal")
    experts = _layer_bytes(header, layers, _EXPERTS)
    return ModelConfig(
        architecture=fields.architecture,
        kind=_kind(fields),
        name=fields.text("general.name"),
        description=fields.word("general.description") or None,
        license=fields.word("general.license") or None,
        size_label=fields.word("general.size_label") or None,
        card=_card(header),
        files=header.files,
        layers=layers,
        embedding=embedding,
        context=context,
        trained_context=context,
        vocab_size=vocab_size,
        heads=heads,
        kv_heads=kv_heads,
        feed_forward=fields.per_layer(".feed_forward_length", layers) or (0,) * layers,
        key_length=key_length,
        value_length=value_length,
        key_length_swa=key_length if key_swa is None else key_swa,
        value_length_swa=value_length if value_swa is None else value_swa,
        kv_lora_rank=count(".attention.kv_lora_rank") or 0,
        q_lora_rank=count(".attention.q_lora_rank") or 0,
        key_length_mla=count(".attention.key_length_mla") or 0,
        value_length_mla=count(".attention.value_length_mla") or 0,
        sliding_window=count(".attention.sliding_window") or 0,
        sliding_pattern=fields.numbers(".attention.sliding_window_pattern"),
        shared_kv_layers=count(".attention.shared_kv_layers") or 0,
        nextn_layers=count(".nextn_predict_layers") or 0,
        causal=causal is not False or fields.architecture in DRAFTERS,
        decision_type=fields.word(".decision.type") or None,
        target_layers=fields.numbers(".target_layers"),
        target_width=_target_width(fields, embedding),
        block_size=count(".block_size") or _BLOCK if fields.architecture == "dflash" else 0,
        decision_temperatures=decision_temperatures(fields),
        norm_epsilon=first_number(
            fields,
            ".attention.layer_norm_rms_epsilon",
            ".attention.layer_norm_epsilon",
            ".attention.group_norm_epsilon",
        ),
        rope=rope_config(fields, key_length, context),
        experts=expert_config(fields, layers),
        recurrent=recurrent_config(fields),
        n_params=n_params,
        n_embedding_params=n_embedding,
        size_bytes=n_bytes,
        matrix_bytes={name: share.nbytes for name, share in mix_of(matrices).items()},
        layer_bytes=_layer_bytes(header, layers, _LAYER),
        expert_bytes=experts if any(experts) else (),
        bits_per_weight=bits_per_weight(n_params, n_bytes),
        bits_per_weight_without_embeddings=bits_per_weight(
            n_params - n_embedding, n_bytes - sum(tensor.nbytes for tensor in embeddings)
        ),
        file_type=file_type,
        mix=mix,
        quant=label_of(file_type, mix, Path(header.path).name),
        vectors=vector_config(fields, embedding, fields.text("general.name")),
        tokenizer=tokenizer,
        sampling=sampling_defaults(fields),
    )


def _layer_bytes(header: Header, layers: int, pattern: re.Pattern[str]) -> tuple[int, ...]:
    sizes = [0] * layers
    for tensor in header.tensors:
        found = pattern.match(tensor.name)
        if found and int(found[1]) < layers:
            sizes[int(found[1])] += tensor.nbytes
    return tuple(sizes)


def _target_width(fields: Fields, embedding: int) -> int:
    """Elements of a hidden state of the model that a drafter reads."""
    if fields.architecture not in DRAFTERS:
        return 0
    keys = {"eagle3": ".target_hidden_size", "gemma4-assistant": ".embedding_length_out"}
    key = keys.get(fields.architecture)
    return embedding if key is None else fields.count(key) or 0


def _kind(fields: Fields) -> Kind:
    if not fields.header.tensors:
        return "vocabulary"
    if fields.architecture in ENCODERS:
        return "encoder"
    return "encoder-decoder" if fields.architecture in ENCODER_DECODERS else "decoder"


def _card(header: Header) -> dict[str, str | float | int]:
    """The keys that begin with `worker.card.`, without that prefix."""
    return {
        key.removeprefix(_CARD): value
        for key, value in header.keys.items()
        if key.startswith(_CARD) and isinstance(value, str | float | int)
    }
