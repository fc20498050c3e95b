"""Two texts as one prompt of a model that scores them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded

_PLACE = re.compile(r"\{(query|document)\}")


def pair_tokens(
    query: str, document: str, loaded: Loaded, param: str, *, most: int | None = None
) -> Sequence[int]:
    """By the file's template `rerank`, or with the tokens that the tokenizer puts around two texts.

    most  the document is cut, so that both have so many tokens

    What the texts spell out is no control token. Raises RequestError.
    """
    tokens = _pair(query, document, loaded, param)
    if most is None or len(tokens) <= most:
        return tokens
    # A shorter document may have a token more where it was cut: so it is looked again.
    spelled = loaded.backend.vocab.spelled
    own = _plain(document, loaded, param)
    keep = max(0, len(own) - (len(tokens) - most))
    while len(tokens) > most and keep >= 0:
        text = b"".join(spelled[token] for token in own[:keep]).decode("utf-8", "ignore")
        tokens = _pair(query, text, loaded, param)
        keep -= max(1, len(tokens) - most)
    if len(tokens) > most:
        raise RequestError(
            f"query alone has more than the {most} tokens that are left for both.", param="query"
        )
    return tokens


def _pair(query: str, document: str, loaded: Loaded, param: str) -> list[int]:
    tokenizer, vocab = loaded.config.tokenizer, loaded.backend.vocab
    template = tokenizer.chat_templates.get("rerank") if tokenizer else None
    if template is not None:
        return _filled(template, {"query": query, "document": document}, loaded, param)
    before = [] if not vocab.adds_bos or vocab.bos is None else [vocab.bos]
    end = [] if not vocab.adds_eos or vocab.eos is None else [vocab.eos]
    between = [] if not vocab.adds_sep or vocab.sep is None else [vocab.sep]
    tokens = [*before, *_plain(query, loaded, "query"), *end, *between]
    return [*tokens, *_plain(document, loaded, param), *(end or between)]


def _filled(template: str, texts: dict[str, str], loaded: Loaded, param: str) -> list[int]:
    """A template with texts in it. Control tokens are those of the template alone; what stands
    between two of them is read as one text, as the model was trained with it."""
    vocab = loaded.backend.vocab
    controls = {**vocab.controls, **{vocab.name(token): token for token in vocab.end_tokens}}
    names = sorted(filter(None, controls), key=len, reverse=True)
    cuts = re.split("|".join(f"({re.escape(name)})" for name in names), template) if names else [
        template
    ]  # fmt: skip
    tokens: list[int] = []
    for part in cuts:
        if part in controls:
            tokens.append(controls[part])
        elif part:
            filled = _PLACE.sub(lambda found: texts[found[1]], part)
            tokens += _plain(filled, loaded, param)
    return tokens


def _plain(text: str, loaded: Loaded, param: str) -> list[int]:
    return loaded.backend.vocab.tokenize(
        text, add_special=False, parse_special=False, param=param, bounded=True
    )
