"""Header -> TokenizerConfig: token ids and defaults as llama.cpp chooses them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from worker.gguf.fields import Fields
from worker.model.families import (
    END_TEXTS,
    FAMILIES,
    ID_KEYS,
    NAMED_TEXTS,
    PRE_ADD_BOS,
    PRE_ADD_SEP,
    PRE_ALWAYS_BOS,
    PRE_WITHOUT_BOS,
    Family,
)

_TOKENS = "tokenizer.ggml.tokens"
_TEMPLATE = "tokenizer.chat_template"
_PLAMO_END = "<|plamo:eos|>"
_END_ROLES = ("fim_pad", "fim_rep", "fim_sep", "eos", "eot", "eom")


class TokenizerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a model turns text into tokens: what its file says, and llama.cpp's defaults.

    An id is None where the model has no such token. `eog_ids` are all ids that end a
    generation, ascending. `longest` is the number of bytes of the longest token, as the file spells
    it. `chat_template` is the default one, `chat_templates` the named ones.
    """

    model: str
    pre: str | None
    vocab_size: int
    longest: int
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    eom_id: int | None
    unk_id: int | None
    sep_id: int | None
    pad_id: int | None
    cls_id: int | None
    mask_id: int | None
    fim_pre_id: int | None
    fim_suf_id: int | None
    fim_mid_id: int | None
    fim_pad_id: int | None
    fim_rep_id: int | None
    fim_sep_id: int | None
    eog_ids: tuple[int, ...]
    add_bos: bool
    add_eos: bool
    add_sep: bool
    bos_text: str | None
    eos_text: str | None
    chat_template: str | None
    chat_templates: dict[str, str]


def tokenizer_config(fields: Fields) -> TokenizerConfig:
    """The tokenizer of a header. Raises ModelFileError where llama.cpp does not know it."""
    model = fields.text("tokenizer.ggml.model") or fields.missing("tokenizer.ggml.model")
    pre = fields.text("tokenizer.ggml.pre")
    family = FAMILIES.get(model)
    if family is None:
        fields.bad("tokenizer.ggml.model", model, "a known tokenizer", "UNKNOWN_TOKENIZER")
    tokens = fields.strings(_TOKENS)
    size = len(tokens) if tokens is not None else fields.count(".vocab_size") or 0
    settled_pre = settle_pre(family, model, pre)
    telling = {text.encode(): text for texts in NAMED_TEXTS.values() for text in texts}
    telling |= {text.encode(): text for text in (*END_TEXTS, _PLAMO_END)}
    found = {} if tokens is None else tokens.find(list(telling))
    texts = {telling[raw]: index for raw, index in found.items()}
    ids = token_ids(fields, family, settled_pre, size, texts)
    add_bos, add_eos, add_sep = additions(fields, family, settled_pre)

    def text_of(role: str) -> str | None:
        index = ids.get(role)
        return None if tokens is None or index is None else tokens[index]

    return TokenizerConfig(
        model=model,
        pre=pre,
        vocab_size=size,
        longest=0 if tokens is None else int(tokens.lengths.max(initial=0)),
        **{f"{role}_id": ids.get(role) for role in ID_KEYS},
        eog_ids=_end_ids(ids, texts),
        add_bos=add_bos,
        add_eos=add_eos,
        add_sep=add_sep,
        bos_text=text_of("bos"),
        eos_text=text_of("eos"),
        chat_template=fields.text(_TEMPLATE),
        chat_templates={
            key.removeprefix(_TEMPLATE + "."): value
            for key, value in fields.header.keys.items()
            if key.startswith(_TEMPLATE + ".") and isinstance(value, str)
        },
    )


def settle_pre(family: Family, model: str, pre: str | None) -> str:
    """The pre-tokenizer that llama.cpp uses; empty where the tokenizer has none."""
    if not family.bpe:
        return ""
    return "gemma4" if model == "gemma4" else pre or "default"


def token_ids(
    fields: Fields, family: Family, pre: str, size: int, texts: Mapping[str, int]
) -> dict[str, int]:
    """Role -> id: from the family's defaults, from the keys, else from the texts of tokens.

    An id out of range is ignored, as in llama.cpp.
    """
    ids = {role: index for role, index in family.ids.items() if index < size}
    if pre in PRE_WITHOUT_BOS:
        ids.pop("bos", None)
    for role, keys in ID_KEYS.items():
        for key in keys:
            index = fields.count(f"tokenizer.ggml.{key}")
            if index is not None and index < size:
                ids[role] = index
    for role, candidates in NAMED_TEXTS.items():
        # Where several texts are tokens, llama.cpp takes the first of its hash table, and we take
        # the first of NAMED_TEXTS. The others still end a generation, because of END_TEXTS.
        index = next((texts[text] for text in candidates if text in texts), None)
        if index is not None:
            ids.setdefault(role, index)
    return ids


def additions(fields: Fields, family: Family, pre: str) -> tuple[bool, bool, bool]:
    """Whether BOS, EOS and SEP are added to a text."""

    def told(key: str, default: bool) -> bool:
        value = fields.flag(f"tokenizer.ggml.{key}")
        return default if value is None else value

    add_bos = told("add_bos_token", family.add_bos or pre in PRE_ADD_BOS)
    return (
        add_bos or pre in PRE_ALWAYS_BOS,
        told("add_eos_token", family.add_eos),
        told("add_sep_token", family.add_sep or pre in PRE_ADD_SEP),
    )


def _end_ids(ids: Mapping[str, int], texts: Mapping[str, int]) -> tuple[int, ...]:
    ends = {texts[text] for text in END_TEXTS if text in texts}
    ends |= {ids[role] for role in _END_ROLES if role in ids}

    def ending(*any_of: str) -> bool:
        return any(texts.get(text) in ends for text in any_of)

    # In formats like Harmony <|end|> comes inside of a turn.
    calls = ending("<|call|>", "<|calls|>")
    if calls and ending("<|return|>", "<|flush|>") and "<|end|>" in texts:
        ends.discard(texts["<|end|>"])
    # Gemma 4 and PLaMo have a `</s>` that is plain text.
    if ending("<|tool_response>", _PLAMO_END) and "</s>" in texts:
        ends.discard(texts["</s>"])
    return tuple(sorted(ends))
