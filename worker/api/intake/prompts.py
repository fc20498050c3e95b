"""Texts and token ids to prompts: bounded, checked, tokenised.

`param` is the field of the client's body that an error names.
"""

from __future__ import annotations

from functools import partial

import msgspec

from worker.api.intake.facts import ModelFacts
from worker.api.intake.media_inputs import MediaInputs
from worker.budget import Budget
from worker.engine.request import Prompt, check_length
from worker.errors import ContextLengthError, RequestError
from worker.limits import COUNTED


class Truncated(msgspec.Struct, frozen=True):
    """What was left out of a prompt."""

    messages: int
    tokens: int


class TextPrompt(Prompt, frozen=True, kw_only=True):
    """A prompt, and the text that the client gave for it.

    text         what was tokenised; `echo` repeats it
    shown        which tokens are the text's: not a BOS that the tokenizer added
    space_added  the tokenizer put a space before the text, which is not to be counted
    """

    text: str
    shown: slice = slice(None)
    space_added: bool = False


def check_hopeless(text: str, size: int, facts: ModelFacts, param: str, budget: Budget) -> None:
    """Raise ContextLengthError for a text of `size` characters that no context holds.

    text  its beginning, from which the tokens of all of it are reckoned: to count those of
          megabytes takes seconds

    A token holds a bounded number of bytes.
    """
    if size <= COUNTED.most:
        return
    tokenizer = facts.config.tokenizer
    if size <= facts.max_length * (tokenizer.longest if tokenizer else 0):
        return
    text = text[: COUNTED.most]
    tokens = facts.vocab.tokenize(
        text, add_special=False, parse_special=True, param=param, budget=budget
    )
    count = max(len(tokens) * size // len(text), facts.max_length + 1)
    raise ContextLengthError(count, facts.max_length, param=param)


def without_bos(text: str, facts: ModelFacts) -> str:
    """The text without a BOS that it spells, if the tokenizer adds one: there is one then."""
    return text.removeprefix(facts.vocab.bos_name) if facts.vocab.adds_bos else text


def to_be_continued(
    text: str,
    facts: ModelFacts,
    param: str,
    budget: Budget,
    *,
    add_special: bool = True,
    must_fit: bool = True,
) -> list[int]:
    """A text's tokens, with one BOS where the tokenizer adds it, also where the text spells it, and
    without an EOS that the model's metadata adds: it would end it.

    must_fit  the context holds it
    """
    vocab = facts.vocab
    if must_fit and len(text) > COUNTED.most:
        check_hopeless(text, len(text), facts, param, budget)
    if add_special:
        text = without_bos(text, facts)
    tokens = vocab.tokenize(
        text, add_special=add_special, parse_special=True, param=param, budget=budget
    )
    if add_special and vocab.adds_eos and tokens and tokens[-1] == vocab.eos:
        return tokens[:-1]
    return tokens


def text_prompt(
    text: str, facts: ModelFacts, param: str, budget: Budget, *, add_special: bool = True
) -> TextPrompt:
    """A text to continue. Raises RequestError."""
    vocab = facts.vocab
    tokens = to_be_continued(text, facts, param, budget, add_special=add_special)
    added = add_special and vocab.adds_bos and bool(tokens) and tokens[0] == vocab.bos
    added = added and not text.startswith(vocab.name(tokens[0]))
    begin = int(added and len(tokens) > 1)
    first = facts.vocab.pieces[tokens[begin]] if tokens else b""
    space_added = first.startswith(b" ") and not text.startswith(" ")
    shown = slice(begin, None)
    return TextPrompt(tuple(tokens), text=text, shown=shown, space_added=space_added)


def rendered_prompt(
    text: str, facts: ModelFacts, param: str, media: MediaInputs, *, must_fit: bool = True
) -> TextPrompt:
    """What a chat template made: control tokens in it are read as such, and BOS is there once.

    media     whose marks are in the text
    must_fit  as above. Raises RequestError.
    """
    read = partial(
        to_be_continued, facts=facts, param=param, budget=media.budget, must_fit=must_fit
    )
    if media.is_empty:
        return TextPrompt(tuple(read(text)), text=text)
    told, tokens, shown = media.prompt(text, read, facts.max_length)
    return TextPrompt(tuple(tokens), text=told, media=shown)


def plain_tokens(text: str, facts: ModelFacts, param: str, budget: Budget) -> list[int]:
    """A text's tokens, in which nothing is read as a control token. Raises RequestError."""
    return facts.vocab.tokenize(
        text, add_special=False, parse_special=False, param=param, budget=budget
    )


def infill_prompt(
    text: str,
    suffix: str,
    facts: ModelFacts,
    param: str,
    budget: Budget,
    *,
    add_special: bool = True,
) -> TextPrompt:
    """PRE text SUF suffix MID, the order that infill models were trained with.

    Raises RequestError, also where the model has no such tokens.
    """
    vocab = facts.vocab
    check_hopeless(text, len(text), facts, param, budget)
    before, after, middle = vocab.infill
    if before is None or after is None or middle is None:
        raise RequestError(
            "suffix needs a model with infill tokens, and this one has none.",
            param="suffix",
            hint="Leave it out, or serve a model for code completion.",
        )
    head = plain_tokens(text, facts, param, budget)
    tail = plain_tokens(suffix, facts, "suffix", budget)
    first = (
        [vocab.bos, before]
        if add_special and vocab.adds_bos and vocab.bos is not None
        else [before]
    )
    shown = slice(len(first), len(first) + len(head)) if head else slice(None)
    return TextPrompt((*first, *head, after, *tail, middle), text=text, shown=shown)


def token_prompt(tokens: list[int], facts: ModelFacts, param: str) -> TextPrompt:
    """Token ids to continue, exactly as they are. Raises RequestError."""
    check_length(len(tokens), facts.max_length, param)
    if any(not 0 <= token < facts.vocab.size for token in tokens):
        raise RequestError(
            f"{param} holds token ids outside 0 to {facts.vocab.size - 1}.", param=param
        )
    text = b"".join(facts.vocab.pieces[token] for token in tokens).decode("utf-8", "replace")
    return TextPrompt(tuple(tokens), text=text)
