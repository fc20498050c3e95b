"""worker show: what a model file says about itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from worker.cli.check import places
from worker.cli.console import data_console, pairs, write_json
from worker.cli.model import model_path
from worker.cli.options import settings_from
from worker.errors import ModelFileError
from worker.gguf.header import Header
from worker.gguf.splits import open_header
from worker.gguf.strings import StringArray
from worker.machine import human_bytes
from worker.memory.embedding import longest_text
from worker.model.adapter import AdapterConfig, load_adapter
from worker.model.architectures import LEARNED_POSITIONS, NO_ROPE
from worker.model.config import ModelConfig, load_config
from worker.model.drafts import reads_cells
from worker.model.projector import ProjectorConfig, load_projector
from worker.model.tokenizer import TokenizerConfig
from worker.model.vectors import pooling_of

_TEMPLATE_LINES = 6
_ROLES = tuple(
    "bos eos eot eom unk sep pad cls mask fim_pre fim_suf fim_mid fim_pad fim_rep fim_sep".split()
)


def run(arguments: argparse.Namespace) -> int:
    """Print the config. Raises ModelFileError where the file is no usable model or adapter."""

    arguments.model = arguments.file
    path = model_path(settings_from(arguments))
    try:
        config = load_config(path, purpose="inspect")
    except ModelFileError as error:
        if error.code == "LORA_ADAPTER":
            _show_adapter(load_adapter(path), as_json=arguments.json)
        elif error.code == "MMPROJ":
            _show_projector(load_projector(path), as_json=arguments.json)
        else:
            raise
        return 0
    if arguments.json:
        write_json(config)
        return 0
    console = data_console()
    for title, rows in sections(config, open_header(path)):
        if rows:
            console.print(pairs(title, rows))
            console.print()
    return 0


def _show_adapter(adapter: AdapterConfig, *, as_json: bool) -> None:

    if as_json:
        write_json(adapter)
        return
    rows = {
        "kind": "activated LoRA adapter" if adapter.invocation else "LoRA adapter",
        "architecture": adapter.architecture,
        "made for": adapter.base or "unknown",
        "rank": str(adapter.rank),
        "alpha": f"{adapter.alpha:g}",
        "matrices": str(adapter.matrices),
        "parameters": _short(adapter.n_params),
        "size": human_bytes(adapter.size_bytes),
    }
    data_console().print(pairs(adapter.name, rows))


def _show_projector(projector: ProjectorConfig, *, as_json: bool) -> None:

    if as_json:
        write_json(projector)
        return
    unknown = "not told by the file"
    rows = {
        "kind": f"projector, {projector.kind}",
        "pictures": "yes" if projector.sees else "no",
        "sounds": "yes" if projector.hears else "no",
        "vectors": f"{projector.output:,} numbers, as its model's" if projector.output else unknown,
        "largest picture": f"{projector.cells:,} cells" if projector.cells else unknown,
        "size": human_bytes(projector.size_bytes),
        "compute": human_bytes(projector.compute_bytes),
    }
    data_console().print(pairs(Path(projector.path).name, rows))


def sections(config: ModelConfig, header: Header) -> Iterable[tuple[str, dict[str, str]]]:
    """Titles and their rows: what the model is, how it is built, its files."""

    yield config.name or config.architecture, _model(config)
    yield "Model card", {name: str(value) for name, value in config.card.items()}
    if config.layers:
        yield "Shape", _shape(config)
        yield "Attention", _attention(config)
    if config.only_embeds:
        yield "Vectors", _vectors(config)
    if config.tokenizer:
        yield "Tokenizer", _tokenizer(config.tokenizer, header)
    if config.mix:
        yield "Weights", _weights(config)
    yield "Recommended sampling", _given_fields(config.sampling)
    if config.tokenizer:
        yield "Chat template", _templates(config.tokenizer)
        yield "Messages, by the chat template", places(config.tokenizer, header)
    yield "Files", {file.path: human_bytes(file.size) for file in config.files}


def _model(config: ModelConfig) -> dict[str, str]:
    rows = {"architecture": config.architecture, "kind": config.kind}
    if config.kind in ("decoder", "encoder"):
        rows["what it does"] = config.does
    texts = {"description": config.description, "license": config.license}
    rows |= {name: text for name, text in texts.items() if text}
    if config.n_params:
        rows["parameters"] = _short(config.n_params)
        rows["quantization"] = f"{config.quant}, {config.bits_per_weight:.2f} bits per weight"
        rows["size"] = human_bytes(config.size_bytes)
    if config.context:
        rows["trained context"] = f"{config.trained_context:,} tokens"
    return rows


def _shape(config: ModelConfig) -> dict[str, str]:
    rows = {
        "layers": str(config.layers),
        "embedding": f"{config.embedding:,}",
        "feed-forward": _layers(config.feed_forward),
        "vocabulary": f"{config.vocab_size:,}",
    }
    if experts := config.experts:
        rows["experts"] = f"{experts.count}, {experts.max_used} used per token"
        if experts.shared:
            rows["experts"] += f", {experts.shared} shared"
        if any(experts.feed_forward):
            rows["expert feed-forward"] = _layers(experts.feed_forward)
    if config.target_width:
        read = "layers " + ", ".join(map(str, config.target_layers))
        if reads_cells(config):
            read = "the last output and the cells of its last layers"
        rows["drafts for"] = (
            f"a model with hidden states of {config.target_width:,} elements and "
            f"{config.vocab_size:,} tokens, of which it reads {read}"
        )
    if config.block_size:
        rows["drafts"] = f"{config.block_size - 1} tokens at once"
    elif config.nextn_layers:
        rows["MTP heads"] = str(config.nextn_layers)
    if config.recurrent:
        rows["recurrent"] = ", ".join(
            f"{k} {v}" for k, v in _given_fields(config.recurrent, 0).items()
        )
    return rows


def _vectors(config: ModelConfig) -> dict[str, str]:

    vectors = config.vectors
    pooling = pooling_of(vectors, None, only_embeds=True) or ""
    told = "" if vectors.pooling else " (the file does not say)"
    rows = {"pooling": pooling + told, "elements": f"{vectors.width:,}"}
    if vectors.can_be_cut:
        rows["elements"] += ", or the first of them"
    if vectors.labels:
        rows["labels"] = ", ".join(vectors.labels)
    if vectors.flaw:
        rows["scores"] = vectors.flaw
    rows["longest text"] = f"{longest_text(config):,} tokens, more with --ctx-size"
    if longest_text(config) == config.context:
        rows["longest text"] = f"{config.context:,} tokens"
    return rows


def _attention(config: ModelConfig) -> dict[str, str]:

    if not config.max_heads:
        return {}
    rows = {
        "heads": _layers(config.heads),
        "key/value heads": _layers(config.kv_heads),
        "key, value length": f"{config.key_length}, {config.value_length}",
    }
    if config.architecture not in NO_ROPE | LEARNED_POSITIONS:
        rows["rotary"] = f"{config.rope.dimensions} dimensions, base {config.rope.freq_base:g}"
        if config.rope.scaling != "none":
            rows["rotary"] += (
                f", {config.rope.scaling} scaling by {config.rope.factor:g} "
                f"from {config.rope.original_context:,} tokens"
            )
    if config.kv_lora_rank:
        rows["latent"] = f"rank {config.kv_lora_rank}"
    if config.sliding_window:
        rows["sliding window"] = f"{config.sliding_window:,} tokens"
    if not config.causal:
        rows["causal"] = "no"
    return rows


def _tokenizer(tokenizer: TokenizerConfig, header: Header) -> dict[str, str]:

    tokens = header.keys.get("tokenizer.ggml.tokens")

    def name_of(index: int) -> str:
        text = tokens[index] if isinstance(tokens, StringArray) and index < len(tokens) else None
        return f"{index} {text}" if text is not None else str(index)

    kind = f"{tokenizer.model} ({tokenizer.pre})" if tokenizer.pre else tokenizer.model
    rows = {"kind": kind, "tokens": f"{tokenizer.vocab_size:,}"}
    for role in _ROLES:
        index = getattr(tokenizer, f"{role}_id")
        if index is not None:
            rows[role.replace("_", " ")] = name_of(index)
    rows["ends generation"] = ", ".join(map(name_of, tokenizer.eog_ids)) or "nothing"
    added = [role for role in ("bos", "eos", "sep") if getattr(tokenizer, f"add_{role}")]
    rows["added to a text"] = ", ".join(added) or "nothing"
    return rows


def _weights(config: ModelConfig) -> dict[str, str]:
    rows: dict[str, str] = {}
    for name, share in config.mix.items():
        bits = share.nbytes * 8 / share.elements if share.elements else 0.0
        rows[name] = (
            f"{share.elements / config.n_params:6.1%} of weights, {share.tensors:4} tensors, "
            f"{human_bytes(share.nbytes):>10}, {bits:.2f} bits"
        )
    rows["without embeddings"] = f"{config.bits_per_weight_without_embeddings:.2f} bits per weight"
    return rows


def _templates(tokenizer: TokenizerConfig) -> dict[str, str]:
    if tokenizer.chat_template is None and not tokenizer.chat_templates:
        return {"default": "none"}
    rows = {"default": _head(tokenizer.chat_template or "none")}
    return rows | {name: _head(text) for name, text in tokenizer.chat_templates.items()}


def _head(text: str) -> str:
    lines = text.splitlines()
    more = len(lines) - _TEMPLATE_LINES
    return "\n".join(lines[:_TEMPLATE_LINES]) + (f"\n({more} more lines)" if more > 0 else "")


def _given_fields(struct: Any, silent: int | None = None) -> dict[str, str]:
    """The fields of a struct, without those whose value is `silent`."""
    values = {name: getattr(struct, name) for name in struct.__struct_fields__}
    return {
        name.replace("_", " "): f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in values.items()
        if value != silent
    }


def _layers(values: tuple[int, ...]) -> str:
    """One number where all layers have the same, else runs: `0 x 3, 8 x 1`."""
    if len(set(values)) <= 1:
        return f"{values[0]:,}" if values else "0"
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1] = (value, runs[-1][1] + 1)
        else:
            runs.append((value, 1))
    return ", ".join(f"{value:,} x {count}" for value, count in runs)


def _short(count: int) -> str:
    """1235814400 -> '1.24 B (1,235,814,400)'."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if count >= size:
            return f"{count / size:.3g} {unit} ({count:,})"
    return f"{count:,}"
