"""Texts to tokens and back, under llama-server's field names and vLLM's.

Nothing reaches native code but text of a bounded length; token ids are looked up in a table,
because one that is out of range would end the process there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from worker.api.answer.logprobs import token_text
from worker.api.intake.bounds import characters, items
from worker.api.intake.facts import ModelFacts
from worker.api.intake.prompts import without_bos
from worker.budget import Budget
from worker.errors import RequestError
from worker.limits import TEXT, TOKENS

Text = Annotated[str | None, characters(TEXT.most)]


class TokenizeRequest(msgspec.Struct):
    """`content` is llama-server's name (no BOS unless asked for), `prompt` vLLM's (with BOS).

    content, prompt    the text; one of them
    add_special, add_special_tokens
                       whether BOS and EOS are added as the tokenizer wants them; BOS is there
                       once, also if the text spells it
    parse_special      false: control tokens that are spelt out are plain text
    with_pieces        true: each token with its text
    return_token_strs  true: the texts as a list of their own, too
    """

    content: Text = None
    prompt: Text = None
    add_special: bool | None = None
    add_special_tokens: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None
    return_token_strs: bool | None = None


class Piece(msgspec.Struct):
    """A token with its text, or its bytes where they are a part of a character."""

    id: int
    piece: str | list[int]


class TokenizeReply(msgspec.Struct, omit_defaults=True):
    """`tokens` are ids, or Pieces where `with_pieces` asked for them."""

    tokens: Sequence[int | Piece]
    count: int
    max_model_len: int
    token_strs: list[str] | None = None


class DetokenizeRequest(msgspec.Struct):
    """Token ids."""

    tokens: Annotated[list[int] | None, items(TOKENS.most, of={"minimum": 0})] = None


class DetokenizeReply(msgspec.Struct):
    """The same text under both names; control tokens are spelt out."""

    content: str
    prompt: str


class TokenizerInfo(msgspec.Struct, kw_only=True):
    """What evaluation harnesses ask about a remote tokenizer; null: the model has no such token."""

    model: str
    pre: str | None
    vocab_size: int
    model_max_length: int
    bos_token: str | None
    bos_token_id: int | None
    eos_token: str | None
    eos_token_id: int | None
    pad_token: str | None
    pad_token_id: int | None
    unk_token: str | None
    unk_token_id: int | None
    eog_token_ids: tuple[int, ...]
    add_bos_token: bool
    add_eos_token: bool
    chat_template: str | None


def tokenize(body: TokenizeRequest, facts: ModelFacts, budget: Budget) -> TokenizeReply:
    """Raises RequestError that names the field."""
    vocab = facts.vocab
    name = "prompt" if body.content is None else "content"
    text = body.prompt if body.content is None else body.content
    if text is None or None not in (body.content, body.prompt):
        raise RequestError("Send content or prompt, one of them.", param=name)
    if len(text) > TEXT.most:
        raise RequestError(f"{name} must have at most {TEXT.most} characters.", param=name)
    special = body.add_special if body.add_special_tokens is None else body.add_special_tokens
    adds, parses = name == "prompt" if special is None else special, body.parse_special is not False
    tokens = vocab.tokenize(
        without_bos(text, facts) if adds and parses else text,
        add_special=adds,
        parse_special=parses,
        param=name,
        budget=budget,
    )
    texts = vocab.spelled if body.with_pieces or body.return_token_strs else ()
    return TokenizeReply(
        [Piece(token, _piece(texts[token])) for token in tokens] if body.with_pieces else tokens,
        len(tokens),
        facts.max_length,
        [token_text(texts[token]) for token in tokens] if body.return_token_strs else None,
    )


def detokenize(body: DetokenizeRequest, texts: Sequence[bytes]) -> DetokenizeReply:
    """texts: token id -> its bytes. Raises RequestError for ids that it does not have."""
    tokens = body.tokens
    if tokens is None:
        raise RequestError("tokens is missing.", param="tokens")
    if len(tokens) > TOKENS.most:
        raise RequestError(f"tokens must be at most {TOKENS.most}.", param="tokens")
    if tokens and not (min(tokens) >= 0 and max(tokens) < len(texts)):
        raise RequestError(f"tokens holds ids outside 0 to {len(texts) - 1}.", param="tokens")
    text = b"".join([texts[token] for token in tokens]).decode("utf-8", "replace")
    return DetokenizeReply(text, text)


def info_of(facts: ModelFacts) -> TokenizerInfo:
    """Ids as the file says and llama.cpp settles them."""
    vocab = facts.vocab
    config = facts.config.tokenizer
    assert config is not None  # a model that generates has one: checked at load

    def text(token: int | None) -> str | None:
        return None if token is None else vocab.spelled[token].decode("utf-8", "backslashreplace")

    return TokenizerInfo(
        model=config.model,
        pre=config.pre,
        vocab_size=vocab.size,
        model_max_length=facts.max_length,
        bos_token=text(vocab.bos),
        bos_token_id=vocab.bos,
        eos_token=text(vocab.eos),
        eos_token_id=vocab.eos,
        pad_token=text(config.pad_id),
        pad_token_id=config.pad_id,
        unk_token=text(config.unk_id),
        unk_token_id=config.unk_id,
        eog_token_ids=tuple(sorted(vocab.end_tokens)),
        add_bos_token=vocab.adds_bos,
        add_eos_token=vocab.adds_eos,
        chat_template=config.chat_template,
    )


def _piece(raw: bytes) -> str | list[int]:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return list(raw)
