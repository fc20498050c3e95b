"""Texts and token ids to prompts: bounded, checked, tokenised.

`param` is the field of the client's body that an error names.
"""

from __future__ import annotations

import msgspec

from worker.api.intake.media_inputs import GALLERY
from worker.engine.request import Prompt, check_length
from worker.errors import ContextLengthError, RequestError
from worker.lifecycle.loaded import Loaded
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


def check_hopeless(text: str, size: int, loaded: Loaded, param: str) -> None:
    """Raise ContextLengthError for a text of `size` characters that no context holds.

    text  its beginning, from which the tokens of all of it are reckoned: to count those of
          megabytes takes seconds

    A token holds a bounded number of bytes.
    """
    if size <= COUNTED.most:
        return
    backend, tokenizer = loaded.backend, loaded.config.tokenizer
    if size <= backend.max_length * (tokenizer.longest if tokenizer else 0):
        return
    text = text[: COUNTED.most]
    tokens = backend.vocab.tokenize(
        text, add_special=False, parse_special=True, param=param, bounded=True
    )
    count = max(len(tokens) * size // len(text), backend.max_length + 1)
    raise ContextLengthError(count, backend.max_length, param=param)


def without_bos(text: str, loaded: Loaded) -> str:
    """The text without a BOS that it spells, if the tokenizer adds one: there is one then."""
    vocab = loaded.backend.vocab
    if vocab.adds_bos and vocab.bos is not None:
        return text.removeprefix(vocab.name(vocab.bos))
    return text


def to_be_continued(
    text: str, loaded: Loaded, param: str, *, add_special: bool = True, must_fit: bool = True
) -> list[int]:
    """A text's tokens, with one BOS where the tokenizer adds it, also where the text spells it, and
    without an EOS that the model's metadata adds: it would end it.

    must_fit  the context holds it
    """
    vocab = loaded.backend.vocab
    if must_fit:
        check_hopeless(text, len(text), loaded, param)
    if add_special:
        text = without_bos(text, loaded)
    tokens = vocab.tokenize(
        text, add_special=add_special, parse_special=True, param=param, bounded=True
    )
    if add_special and vocab.adds_eos and tokens and tokens[-1] == vocab.eos:
        return tokens[:-1]
    return tokens


def text_prompt(text: str, loaded: Loaded, param: str, *, add_special: bool = True) -> TextPrompt:
    """A text to continue. Raises RequestError."""
    vocab = loaded.backend.vocab
    tokens = to_be_continued(text, loaded, param, add_special=add_special)
    added = add_special and vocab.adds_bos and bool(tokens) and tokens[0] == vocab.bos
    added = added and not text.startswith(vocab.name(tokens[0]))
    begin = int(added and len(tokens) > 1)
    first = loaded.backend.pieces[tokens[begin]] if tokens else b""
    space_added = first.startswith(b" ") and not text.startswith(" ")
    shown = slice(begin, None)
    return TextPrompt(tuple(tokens), text=text, shown=shown, space_added=space_added)


def rendered_prompt(text: str, loaded: Loaded, param: str, *, must_fit: bool = True) -> TextPrompt:
    """What a chat template made: control tokens in it are read as such, and BOS is there once.

    must_fit  as above. Raises RequestError.
    """
    gallery = GALLERY.get()
    if gallery is None or gallery.is_empty:
        tokens = to_be_continued(text, loaded, param, must_fit=must_fit)
        return TextPrompt(tuple(tokens), text=text)
    told, tokens, media = gallery.prompt(
        text,
        lambda part, is_first: to_be_continued(
            part, loaded, param, add_special=is_first, must_fit=must_fit
        ),
        loaded.backend.max_length,
    )
    return TextPrompt(tuple(tokens), text=told, media=media)


def plain_tokens(text: str, loaded: Loaded, param: str) -> list[int]:
    """A text's tokens, in which nothing is read as a control token. Raises RequestError."""
    return loaded.backend.vocab.tokenize(
        text, add_special=False, parse_special=False, param=param, bounded=True
    )


def infill_prompt(
    text: str, suffix: str, loaded: Loaded, param: str, *, add_special: bool = True
) -> TextPrompt:
    """PRE text SUF suffix MID, the order that infill models were trained with.

    Raises RequestError, also where the model has no such tokens.
    """
    vocab = loaded.backend.vocab
    check_hopeless(text, len(text), loaded, param)
    before, after, middle = vocab.infill
    if before is None or after is None or middle is None:
        raise RequestError(
            "suffix needs a model with infill tokens, and this one has none.", param="suffix"
        )
    head, tail = plain_tokens(text, loaded, param), plain_tokens(suffix, loaded, "suffix")
    first = (
        [vocab.bos, before]
        if add_special and vocab.adds_bos and vocab.bos is not None
        else [before]
    )
    shown = slice(len(first), len(first) + len(head)) if head else slice(None)
    return TextPrompt((*first, *head, after, *tail, middle), text=text, shown=shown)


def token_prompt(tokens: list[int], loaded: Loaded, param: str) -> TextPrompt:
    """Token ids to continue, exactly as they are. Raises RequestError."""
    check_length(len(tokens), loaded.backend.max_length, param)
    if any(not 0 <= token < loaded.backend.vocab_size for token in tokens):
        raise RequestError(
            f"{param} holds token ids outside 0 to {loaded.backend.vocab_size - 1}.", param=param
        )
    text = b"".join(loaded.backend.pieces[token] for token in tokens).decode("utf-8", "replace")
    return TextPrompt(tuple(tokens), text=text)
