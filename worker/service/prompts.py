"""The prompt field in all its shapes: text, a list of texts, token ids, a list of lists of them."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.engine.request import check_length
from worker.errors import RequestError
from worker.lifecycle.worker import Worker
from worker.service.openai.completion_schemas import CompletionRequest

MAX_CHOICES = 128  # continuations of one request


class Prompt(msgspec.Struct, frozen=True):
    """One prompt.

    tokens       as computed
    shown        without a BOS that the tokenizer added
    text         what `echo` repeats
    space_added  the tokenizer put a space before the text, which is not to be counted
    """

    tokens: list[int]
    shown: list[int]
    text: str
    space_added: bool = False


def prompts_of(body: CompletionRequest, worker: Worker) -> list[Prompt]:
    """At least one Prompt. Raises RequestError that names the field."""
    given: Any = body.prompt
    if given is None:
        raise RequestError("prompt is missing.", param="prompt", hint="Send a text.")
    if isinstance(given, str):
        return [_from_text(given, body, worker)]
    if not given:
        raise RequestError("prompt is an empty list.", param="prompt")
    if isinstance(given[0], int):
        check_length(len(given), worker.backend.max_length)  # before each of a million is looked at
    elif len(given) > MAX_CHOICES:
        raise RequestError(
            f"prompt has {len(given)} entries, {MAX_CHOICES} is the most.", param="prompt"
        )
    if body.suffix and not all(isinstance(item, str) for item in given):
        raise RequestError("suffix needs a prompt of text.", param="suffix")
    if all(isinstance(item, str) for item in given):
        return [_from_text(text, body, worker) for text in given]
    if all(isinstance(item, int) for item in given):
        return [_from_tokens(given, worker)]
    if all(isinstance(item, list) for item in given):
        return [_from_tokens(tokens, worker) for tokens in given]
    raise RequestError(
        "prompt mixes texts, token ids and lists.", param="prompt", hint="Send one kind."
    )


def check_characters(count: int, worker: Worker, param: str, *, plural: bool = False) -> None:
    """A token holds a bounded number of bytes: what cannot fit is not worth tokenising.

    Raises RequestError about the field `param`; its name may be a plural.
    """
    has, it = ("have", "them") if plural else ("has", "it")
    if count > worker.backend.max_text:
        raise RequestError(
            f"{param} {has} {count} characters, "
            f"the context holds {worker.backend.max_length} tokens.",
            param=param,
            hint=f"Shorten {it} or start the worker with a larger --ctx-size.",
            code="context_length_exceeded",
        )


def to_be_continued(text: str, worker: Worker, *, add_special: bool = True) -> list[int]:
    """A prompt's tokens, without an EOS that the model's metadata adds: it would end it."""
    vocab = worker.backend.vocab
    tokens = vocab.tokenize(text, add_special=add_special, parse_special=True)
    if add_special and vocab.adds_eos and tokens and tokens[-1] == vocab.eos:
        return tokens[:-1]
    return tokens


def _from_text(text: str, body: CompletionRequest, worker: Worker) -> Prompt:
    vocab = worker.backend.vocab
    check_characters(len(text), worker, "prompt")
    special = body.add_special_tokens is not False
    if body.suffix:
        return Prompt(*_infill(text, body.suffix, special, worker), text)
    tokens = to_be_continued(text, worker, add_special=special)
    added = special and vocab.adds_bos and bool(tokens) and tokens[0] == vocab.bos
    shown = tokens[1:] if added and len(tokens) > 1 else tokens
    first = worker.backend.pieces[shown[0]] if shown else b""
    return Prompt(tokens, shown, text, first.startswith(b" ") and not text.startswith(" "))


def _infill(text: str, suffix: str, special: bool, worker: Worker) -> tuple[list[int], list[int]]:
    """PRE prompt SUF suffix MID, the order that the infill models were trained with."""
    vocab = worker.backend.vocab
    before, after, middle = vocab.infill
    if before is None or after is None or middle is None:
        raise RequestError("This model has no infill tokens.", param="suffix")
    prompt = vocab.tokenize(text, add_special=False, parse_special=False)
    end = vocab.tokenize(suffix, add_special=False, parse_special=False)
    tokens = [before, *prompt, after, *end, middle]
    if special and vocab.adds_bos and vocab.bos is not None:
        tokens.insert(0, vocab.bos)
    return tokens, prompt or tokens


def _from_tokens(tokens: list[int], worker: Worker) -> Prompt:
    check_length(len(tokens), worker.backend.max_length)
    if not all(isinstance(token, int) for token in tokens):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RequestError("prompt mixes texts and token ids.", param="prompt")
    if any(not 0 <= token < worker.backend.vocab_size for token in tokens):
        raise RequestError(
            f"prompt holds token ids outside 0 to {worker.backend.vocab_size - 1}.", param="prompt"
        )
    text = b"".join(worker.backend.pieces[token] for token in tokens).decode("utf-8", "replace")
    return Prompt(tokens, tokens, text)
