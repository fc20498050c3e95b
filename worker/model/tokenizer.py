"""Header -> TokenizerConfig: token ids and defaults as llama.cpp chooses them, with the tokenizer
models that the pinned one knows."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from worker.gguf.fields import Fields

NO_VOCABULARY = frozenset({"none", "no_vocab"})
# Needs the tokenizer model of the same name. With another one spaces are left over, and native code
# aborts on them.
WHITESPACE = "whitespace"
NO_MERGES = frozenset({"kimi-k2"})
PRE_ALWAYS_BOS = frozenset({"gemma4", "granite-embed-multi-311m"})
PRE_ADD_SEP = frozenset({"jina-v1-en", "jina-v2-code", "roberta-bpe"})
PRE_WITHOUT_BOS = frozenset({"chatglm-bpe", "glm4", "glm5"})
# A token with one of these texts ends a generation.
END_TEXTS = tuple(
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> "
    "<|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> "
    "<end_of_utterance> <eos> <turn|> <|tool_response> <｜end▁of▁sentence｜> [e~[".split()
)
# Role -> texts of tokens that get the role where no key gives an id.
NAMED_TEXTS: dict[str, tuple[str, ...]] = {
    "eot": ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
            "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>",
            "<end_of_utterance>"),
    "eom": ("<|eom_id|>",),
    "fim_pre": ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>",
                "▁<PRE>", "<|code_prefix|>", "<|prefix|>"),
    "fim_suf": ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>",
                "▁<SUF>", "<|code_suffix|>", "<|suffix|>"),
    "fim_mid": ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>",
                "▁<MID>", "<|code_middle|>", "<|middle|>"),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}  # fmt: skip
# Role -> the keys that give its id. Where several are present, the last one counts.
ID_KEYS: dict[str, tuple[str, ...]] = {
    "bos": ("bos_token_id",), "eos": ("eos_token_id",), "eot": ("eot_token_id",),
    "eom": ("eom_token_id",), "unk": ("unknown_token_id",), "sep": ("seperator_token_id",),
    "pad": ("padding_token_id",), "cls": ("cls_token_id",), "mask": ("mask_token_id",),
    "fim_pre": ("fim_pre_token_id", "prefix_token_id"),
    "fim_suf": ("fim_suf_token_id", "suffix_token_id"),
    "fim_mid": ("fim_mid_token_id", "middle_token_id"),
    "fim_pad": ("fim_pad_token_id",), "fim_rep": ("fim_rep_token_id",),
    "fim_sep": ("fim_sep_token_id",),
}  # fmt: skip
_TOKENS = "tokenizer.ggml.tokens"
_TEMPLATE = "tokenizer.chat_template"
_PLAMO_END = "<|plamo:eos|>"
_END_ROLES = ("fim_pad", "fim_rep", "fim_sep", "eos", "eot", "eom")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A value of `tokenizer.ggml.model`. `ids` are the special tokens where keys are absent."""

    bpe: bool = False
    has_bytes: bool = False
    """A text that has no token is spelt with tokens `<0x00>` to `<0xFF>`; without them it fails."""
    add_bos: bool = False
    add_eos: bool = False
    add_sep: bool = False
    ids: dict[str, int] = {}


FAMILIES: dict[str, Family] = {
    "llama": Family(has_bytes=True, add_bos=True, ids={"bos": 1, "eos": 2, "unk": 0}),
    "bert": Family(
        add_bos=True, add_sep=True, ids={"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103}
    ),
    "gpt2": Family(bpe=True, ids={"bos": 11, "eos": 11}),
    "hybriddna": Family(bpe=True, ids={"bos": 11, "eos": 11}),
    "whitespace": Family(bpe=True, ids={"bos": 11, "eos": 11}),
    "gemma4": Family(bpe=True, add_bos=True),
    "t5": Family(add_eos=True, ids={"eos": 1, "unk": 2, "pad": 0}),
    "rwkv": Family(),
    "plamo2": Family(has_bytes=True, ids={"bos": 1, "eos": 2, "unk": 0, "pad": 3}),
    "test": Family(),
    "none": Family(),
    "no_vocab": Family(),
}

# Values of tokenizer.ggml.pre, which only BPE reads.
PRE_TOKENIZERS = _names("""
    a.x-4.0 afmoe bailingmoe bailingmoe2 bloom chameleon chatglm-bpe codeshell cohere2moe
    command-r dbrx deepseek-coder deepseek-llm deepseek-r1-qwen deepseek-v3 default exaone
    exaone-moe exaone4 f2llmv2 falcon falcon-h1 falcon3 gemma4 gigachat glm4 glm5 gpt-2 gpt-4o
    gpt3-finnish granite-docling granite-embed-multi-311m granite-embed-multi-97m grok-2 hunyuan
    hunyuan-dense hy_v4 jais jais-2 jina-de jina-es jina-v1-en jina-v2-code jina-v2-de jina-v2-es
    jina-v5-nano joyai-llm kanana2 kimi-k2 kormo laguna lfm2 llada-moe llama-bpe llama-v3 llama3
    llama4 megrez mellum mellum2 midm-2.0 minerva-7b minicpm5 minimax-m2 modern-bert mpt olmo
    phi-2 pixtral poro-chat qwen2 qwen35 refact roberta-bpe sarvam-moe seed-coder smaug-bpe smollm
    solar-open spark2_5 stablelm2 starcoder superbpe talkie tekken tiny_aya trillion ufakzeka
    viking whitespace youtu
""")
PRE_ADD_BOS = _names("""
    chameleon falcon-h1 falcon3 jina-v5-nano lfm2 llama-bpe llama-v3 llama3 midm-2.0 pixtral
    tekken
""")


class TokenizerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a model turns text into tokens: what its file says, and llama.cpp's defaults.

    An id is None where the model has no such token. `eog_ids` are all ids that end a
    generation, ascending. `longest` is the number of bytes of the longest token, as the file spells
    it, `merges` how many there are. `chat_template` is the default one, `chat_templates` the named
    ones.
    """

    model: str
    pre: str | None
    vocab_size: int
    longest: int
    merges: int
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
    model = fields.text("tokenizer.ggml.model") or fields.refuse_missing("tokenizer.ggml.model")
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
        merges=len(fields.strings("tokenizer.ggml.merges") or ()),
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

    def flag(key: str, default: bool) -> bool:
        value = fields.flag(f"tokenizer.ggml.{key}")
        return default if value is None else value

    add_bos = flag("add_bos_token", family.add_bos or pre in PRE_ADD_BOS)
    return (
        add_bos or pre in PRE_ALWAYS_BOS,
        flag("add_eos_token", family.add_eos),
        flag("add_sep_token", family.add_sep or pre in PRE_ADD_SEP),
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
