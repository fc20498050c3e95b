"""What can guess tokens for a model: another one, one that reads its hidden states (EAGLE-3,
DFlash) or its cells too (Gemma 4's assistants), or heads in its own file (multi-token prediction,
MTP)."""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path

import numpy as np

from worker.errors import ModelFileError, UsageError
from worker.gguf.splits import open_header
from worker.gguf.strings import StringArray
from worker.model.architectures import DRAFTERS, GIVES_LAST_LAYER, GIVES_LAYERS
from worker.model.config import ModelConfig, load_config
from worker.model.overrides import NO_WISHES, RopeWish, Wishes

# As llama.cpp compares them (`common_speculative_are_compatible`): vocabularies are padded to
# round sizes, and the first tokens are often reserved under different names.
_MAX_DIFFERENCE = 128
_FIRST_COMPARED = 5
_TOKENS = "tokenizer.ggml.tokens"
# Architectures whose heads are tested here, and the tensors of a head's block that llama.cpp's
# graph for it takes for granted. Where one is missing it ends the process.
_TENSORS: dict[str, tuple[str, ...]] = {
    "glm4moe": ("ffn_gate_inp", "ffn_gate_shexp"),
    "deepseek2": ("ffn_gate_inp", "attn_k_b"),
    "qwen35": (),
    "qwen35moe": ("ffn_gate_inp",),
}
# Recurrent models whose graphs keep the states before their last rows (llama.cpp's
# `llm_arch_supports_rs_rollback`), so that wrong guesses can be dropped.
_KEEP_STATES = frozenset({
    "bailingmoe3", "glm5-next", "kimi-k3", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe",
    "qwen35", "qwen35moe", "qwen4exp",
})  # fmt: skip
_EAGLE_LAYERS = 3
_FEWEST_ROWS = 2  # of a block
_EAGLE_TENSORS = (
    "fc.weight", "output_norm.weight",
    *(f"blk.0.{name}.weight" for name in (
        "attn_norm", "attn_norm_2", "attn_q", "attn_k", "attn_v", "attn_output",
        "ffn_norm", "ffn_gate", "ffn_up", "ffn_down",
    )),
)  # fmt: skip
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_DFLASH_TENSORS = ("fc.weight", "enc.output_norm.weight", "output_norm.weight")
_DFLASH_LAYER = (
    "attn_norm", "attn_q", "attn_q_norm", "attn_k", "attn_k_norm", "attn_output",
    "ffn_norm", "ffn_gate", "ffn_up", "ffn_down",
)  # fmt: skip
# What comes after DFlash, by a tensor that only such a file has.
_BEYOND_DFLASH = {
    "markov_w1.weight": "DSpark",
    "hc_head_fn.weight": "DSpark",
    "selector_hidden.weight": "DFlash 2",
}
_ASSISTANT = "gemma4-assistant"
_ASSISTANT_TENSORS = (
    _EMBEDDING,
    "output_norm.weight",
    "nextn.pre_projection.weight",
    "nextn.post_projection.weight",
)
_ASSISTANT_LAYER = (
    "attn_norm", "attn_q", "attn_q_norm", "attn_output", "post_attention_norm",
    "ffn_norm", "ffn_gate", "ffn_up", "ffn_down", "post_ffw_norm", "layer_output_scale",
)  # fmt: skip
_HINTS = {
    "eagle3": "Choose the EAGLE-3 file that was made for this model.",
    _ASSISTANT: "Choose the assistant that was made for this model.",
    "dflash": "Choose the DFlash file that was made for this model.",
}
_OF_ALL = ("nextn.eh_proj", "nextn.enorm", "nextn.hnorm")


def load_draft_config(
    path: Path, target: ModelConfig, rope: RopeWish = NO_WISHES.rope
) -> ModelConfig:
    """The config of a model that shall guess tokens for `target`.

    rope: of the target, as which one that looks at its cells must rotate
    Raises UsageError where it cannot, or where the file is no good.
    """
    try:
        draft = load_config(path, purpose="draft")
        if reads_cells(draft):
            draft = load_config(path, purpose="draft", wishes=Wishes(rope=rope))
    except ModelFileError as error:
        raise UsageError(
            f"{path.name} cannot draft tokens for {Path(target.path).name}: {error.message}",
            hint=error.hint,
        ) from error
    check_forgets(target, "--draft-model")
    if draft.recurrent is not None:
        raise UsageError(
            f"{path.name} keeps one state for all tokens and cannot reject a draft token.",
            hint="Choose another --draft-model.",
        )
    why = why_no_drafter(target, draft) if reads_states(draft) else None
    why = why or _difference(target, draft)
    if why is not None:
        raise UsageError(
            f"{path.name} cannot draft tokens for {Path(target.path).name}: {why}.",
            hint=_HINTS.get(draft.architecture, "Choose a --draft-model of the same family."),
        )
    return draft


def reads_states(draft: ModelConfig) -> bool:
    """Whether it drafts from another model's hidden states, and not from text alone."""
    return draft.architecture in DRAFTERS


def reads_cells(draft: ModelConfig | None) -> bool:
    """Whether it has no cells of its own, and looks at those of the model that it drafts for."""
    return draft is not None and draft.architecture == _ASSISTANT


def states_read(draft: ModelConfig | None) -> tuple[int, ...]:
    """The model's layers whose inputs the drafter reads; the number of layers: the last output."""
    return draft.target_layers if draft is not None and reads_states(draft) else ()


def borrows(draft: ModelConfig) -> bool:
    """Whether a context must lend it the embeddings or the output layer of the model."""
    there = {tensor.name for tensor in open_header(draft.path).tensors}
    lends = reads_states(draft) and not reads_cells(draft)  # those of the context with the cells
    own = {_EMBEDDING} if draft.architecture == "dflash" else {_EMBEDDING, _OUTPUT}
    return lends and not own <= there


def why_no_drafter(target: ModelConfig, draft: ModelConfig) -> str | None:
    """Why it cannot read this model's hidden states, as a part of a sentence; None: it can.

    llama.cpp takes for granted what is checked here, and ends the process where it is not so.
    """
    if reads_cells(draft):
        return _assistant_flaw(target, draft)
    is_eagle = draft.architecture == "eagle3"
    layers, read = target.layers - target.nextn_layers, draft.target_layers
    if is_eagle and len(read) != _EAGLE_LAYERS:
        return f"it reads {len(read)} layers, and EAGLE-3 is of {_EAGLE_LAYERS}"
    if not read:
        return "it does not say which layers it reads"
    if target.architecture not in GIVES_LAYERS:
        return f"llama.cpp gives no hidden states of {target.architecture} models"
    if draft.target_width != target.embedding:
        return (
            f"it reads hidden states of {draft.target_width} elements, and the model's have "
            f"{target.embedding}"
        )
    most = layers - (target.architecture not in GIVES_LAST_LAYER)
    for layer in read:
        if not 0 <= layer <= most:
            return f"it reads layer {layer}, and the model gives layers 0 to {most}"
    return (_eagle_flaw if is_eagle else _dflash_flaw)(target, draft)


def _of_layers(draft: ModelConfig, names: Iterable[str]) -> list[str]:
    return [f"blk.{i}.{name}.weight" for i in range(draft.layers) for name in names]


def _lacks(there: Container[str], needed: Iterable[str]) -> str | None:
    """The first tensor that is needed and not there, in words."""
    missing = next((name for name in needed if name not in there), None)
    return None if missing is None else f"it has no tensor {missing}"


def _eagle_flaw(target: ModelConfig, draft: ModelConfig) -> str | None:
    """What the graph of an EAGLE-3 drafter lacks."""
    header = open_header(draft.path)
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    needed = [*_EAGLE_TENSORS]
    if header.keys.get("eagle3.norm_before_fc"):
        needed.append("enc.output_norm.weight")
    if (why := _lacks(shapes, needed)) is not None:
        return why
    if draft.layers != 1 or draft.key_length != draft.value_length:
        return "EAGLE-3 has one layer, whose keys and values are equally long"
    own = _EMBEDDING in shapes, _OUTPUT in shapes
    if not all(own) and draft.embedding != target.embedding:
        return (
            f"it uses the model's embeddings, which have {target.embedding} elements, and its own "
            f"rows have {draft.embedding}"
        )
    if own[0] and shapes[_EMBEDDING][-1] < draft.vocab_size:
        return f"it embeds {shapes[_EMBEDDING][-1]} of its {draft.vocab_size} tokens"
    if not own[1] and "d2t" in shapes:
        return "it has a vocabulary of its own without an output layer"
    if not own[1] and draft.vocab_size != target.vocab_size:
        return f"it has {draft.vocab_size} tokens, and the model's output {target.vocab_size}"
    return None


def _dflash_flaw(target: ModelConfig, draft: ModelConfig) -> str | None:
    """What the graph of a DFlash drafter lacks, or has that is not computed here."""
    shapes = {tensor.name: tensor.shape for tensor in open_header(draft.path).tensors}
    for name, kind in _BEYOND_DFLASH.items():
        if name in shapes:
            return f"it is a {kind} file, which is not supported"
    needed = (*_DFLASH_TENSORS, *_of_layers(draft, _DFLASH_LAYER))
    if (why := _lacks(shapes, needed)) is not None:
        return why
    if draft.key_length != draft.value_length:
        return f"its keys have {draft.key_length} elements and its values {draft.value_length}"
    if draft.block_size < _FEWEST_ROWS:
        return f"its blocks have {draft.block_size} row, and one is known"
    mask = draft.tokenizer and draft.tokenizer.mask_id
    if mask is None:
        return "its vocabulary has no mask token"
    embedded = draft.vocab_size if _EMBEDDING in shapes else target.vocab_size
    if mask >= min(embedded, draft.vocab_size):
        return f"its mask token {mask} is not among the {embedded} tokens that are embedded"
    if _OUTPUT in shapes:
        return None
    if "d2t" in shapes:
        return "it has a vocabulary of its own without an output layer"
    if _EMBEDDING not in shapes and draft.vocab_size != target.vocab_size:
        return f"it has {draft.vocab_size} tokens, and the model's output {target.vocab_size}"
    return None


def _assistant_flaw(target: ModelConfig, draft: ModelConfig) -> str | None:
    """What keeps a Gemma 4 assistant from looking at this model's cells.

    Each of its layers looks at the cells of one of the model's last two layers: with a sliding
    window at those of the last but one, else at those of the last.
    """
    if target.architecture != "gemma4":
        return f"it looks at cells of gemma4 models, and this is a {target.architecture} model"
    if draft.target_width != target.embedding:
        return (
            f"it reads hidden states of {draft.target_width} elements, and the model's have "
            f"{target.embedding}"
        )
    there = {tensor.name for tensor in open_header(draft.path).tensors}
    needed = (*_ASSISTANT_TENSORS, *_of_layers(draft, _ASSISTANT_LAYER))
    if (why := _lacks(there, needed)) is not None:
        return why
    if draft.nextn_layers != draft.layers:
        return f"{draft.nextn_layers} of its {draft.layers} layers draft tokens, and all must"
    if draft.embedding == draft.target_width:
        return "its rows are as long as the model's, which llama.cpp does not support"
    slides = [draft.is_sliding(layer) for layer in range(draft.layers)]
    if not any(slides):
        return "none of its layers has a sliding window"
    with_cells = target.layers - target.shared_kv_layers
    for layer, sliding in enumerate(slides):
        seen = target.layers - 1 - sliding
        if seen < 0 or target.is_sliding(seen) != sliding:
            without = "without" if sliding else "with"
            return f"it looks at layer {seen} of the model, which is {without} a sliding window"
        kept = seen if seen < with_cells else with_cells - 1 - sliding
        own = draft.kv_heads[layer], *draft.head_lengths(layer)
        cell = target.kv_heads[kept], *target.head_lengths(kept)
        if own != cell:
            return (
                f"its layer {layer} reads {own[0]} keys of {own[1]} elements in a cell, and the "
                f"model's layer {seen} has {cell[0]} of {cell[1]}"
            )
    return None


def can_forget(config: ModelConfig) -> bool:
    """Whether the model can drop tokens that were guessed wrongly. llama.cpp computes those with
    sliding windows in parts, and a state before the last part is lost."""
    keeps = config.architecture in _KEEP_STATES and not config.sliding_window
    return config.recurrent is None or keeps


def check_forgets(target: ModelConfig, option: str) -> None:
    """Raise UsageError where the model cannot forget a wrong guess; `option` asked for guesses."""
    if not can_forget(target):
        raise UsageError(
            f"{target.architecture} models keep one state for all tokens, which cannot "
            "reject a draft token.",
            hint=f"Leave {option} out.",
        )


def _difference(target: ModelConfig, draft: ModelConfig) -> str | None:
    """How the vocabularies differ; None where they do not."""
    one, other = target.tokenizer, draft.tokenizer
    if one is None or other is None:
        return "one of them has no vocabulary"
    if one.model != other.model:
        return f"their vocabularies are of type {other.model} and {one.model}"
    for name, added, ids in (
        ("BOS", (one.add_bos, other.add_bos), (one.bos_id, other.bos_id)),
        ("EOS", (one.add_eos, other.add_eos), (one.eos_id, other.eos_id)),
    ):
        if added[0] != added[1] or (added[0] and ids[0] != ids[1]):
            return f"they add another {name}"
    if abs(one.vocab_size - other.vocab_size) > _MAX_DIFFERENCE:
        return f"they have {other.vocab_size} and {one.vocab_size} tokens"
    place = _first_difference(_tokens(target), _tokens(draft))
    return None if place is None else f"token {place} is not the same"


def _tokens(config: ModelConfig) -> StringArray:
    found = open_header(config.path).keys.get(_TOKENS)
    return found if isinstance(found, StringArray) else StringArray.of([])


def _first_difference(one: StringArray, other: StringArray) -> int | None:
    """The first id whose texts differ, of those that both have."""
    count = min(len(one), len(other))
    same = one.fingerprints[:count] == other.fingerprints[:count]
    places = np.flatnonzero(~same[_FIRST_COMPARED:])
    return int(places[0]) + _FIRST_COMPARED if len(places) else None


def check_heads(config: ModelConfig) -> None:
    """Raise UsageError unless the file has a head that llama.cpp can compute."""
    why = why_no_heads(config)
    if why is not None:
        raise UsageError(
            f"There is no draft model, and {config.name or config.architecture} cannot draft its "
            f"own tokens: {why}.",
            hint="Choose another --draft, or give a --draft-model.",
        )


def why_no_heads(config: ModelConfig) -> str | None:
    """Why no heads of this file can guess, as a part of a sentence; None: they can.

    The key and the tensors decide, not the file's name: there are files with the key whose tensors
    were left out.
    """
    if not config.nextn_layers:
        return "the file has no heads for it"
    tensors = _TENSORS.get(config.architecture)
    if tensors is None:
        return f"heads of {config.architecture} models are not supported"
    if config.nextn_layers > 1:
        return f"it has {config.nextn_layers} heads, and one is supported"
    header = open_header(config.path)
    if header.keys.get(f"{config.architecture}.attention.temperature_scale"):
        return "its attention is scaled by position, and that of heads is not"
    there = {tensor.name for tensor in header.tensors}
    block = f"blk.{config.layers - config.nextn_layers}."
    for name in (*_OF_ALL, *tensors):
        if f"{block}{name}.weight" not in there:
            return f"the file has no tensor {block}{name}.weight"
    return None
