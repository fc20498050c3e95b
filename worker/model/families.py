"""Tokenizer models that the pinned llama.cpp knows, and its defaults for keys that are absent."""

from __future__ import annotations

import msgspec


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
NO_VOCABULARY = frozenset({"none", "no_vocab"})

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
# Needs the tokenizer model of the same name. With another one spaces are left over, and native code
# aborts on them.
WHITESPACE = "whitespace"
NO_MERGES = frozenset({"kimi-k2"})
PRE_ADD_BOS = _names("""
    chameleon falcon-h1 falcon3 jina-v5-nano lfm2 llama-bpe llama-v3 llama3 midm-2.0 pixtral
    tekken
""")
PRE_ALWAYS_BOS = frozenset({"gemma4", "granite-embed-multi-311m"})
PRE_ADD_SEP = frozenset({"jina-v1-en", "jina-v2-code", "roberta-bpe"})
PRE_WITHOUT_BOS = frozenset({"chatglm-bpe", "glm4", "glm5"})

# A token with one of these texts ends a generation.
END_TEXTS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
)  # fmt: skip
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
