"""What a body of /completion or /infill asks for; infill prompts are from files and the place in
one of them, as infill models were trained with."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from worker.api.intake.bounds import check_alternatives, stops_of, tokens_of
from worker.api.intake.facts import ModelFacts
from worker.api.intake.generation import Generation
from worker.api.intake.media_formats import kind_of
from worker.api.intake.media_inputs import MediaInputs
from worker.api.intake.prompts import (
    TextPrompt,
    Truncated,
    check_hopeless,
    plain_tokens,
    rendered_prompt,
    text_prompt,
    to_be_continued,
    token_prompt,
)
from worker.api.intake.sampling import sampling_of
from worker.api.llama_server.schemas import (
    InfillRequest,
    PromptObject,
    WritingFields,
    WritingRequest,
)
from worker.budget import Budget
from worker.engine.request import GenerationParams, check_length
from worker.errors import ContextLengthError, NotSupportedError, RequestError
from worker.limits import SEQUENCES

PARAM = "prompt"
MARKER = "<__media__>"  # llama-server's


def prompts_of(body: WritingRequest, facts: ModelFacts, budget: Budget) -> tuple[TextPrompt, ...]:
    """At least one. Raises RequestError."""
    given: Any = body.prompt
    media = MediaInputs(facts.media, budget)
    if given is None or given == []:
        raise RequestError("prompt is missing.", param=PARAM, hint="Send a text.")
    if not isinstance(given, list):
        return (_one(given, facts, media),)
    entries = cast("list[Any]", given)
    if any(_is_id(entry) for entry in entries):
        return (_one(entries, facts, media),)
    if len(entries) > SEQUENCES.most:
        raise RequestError(
            f"prompt has {len(entries)} entries, {SEQUENCES.most} is the most.", param=PARAM
        )
    return tuple(_one(entry, facts, media) for entry in entries)


def _one(given: Any, facts: ModelFacts, media: MediaInputs) -> TextPrompt:
    """One prompt: a text, an object with one, or token ids and texts in a row."""
    if isinstance(given, PromptObject):
        given = {"prompt_string": given.prompt_string, "multimodal_data": given.multimodal_data}
    if isinstance(given, dict):
        fields = cast("dict[str, Any]", given)
        given = fields.get("prompt_string")
        if (shown := fields.get("multimodal_data")) and isinstance(given, str):
            return _with_media(given, shown, facts, media)
    if isinstance(given, str):
        return text_prompt(given, facts, PARAM, media.budget)
    if not isinstance(given, list):
        raise RequestError("prompt must be texts and token ids.", param=PARAM)
    row = cast("list[Any]", given)
    check_length(len(row), facts.max_length, PARAM)  # before a million is looked at
    tokens: list[int] = []
    for place, entry in enumerate(row):
        if _is_id(entry):
            tokens.append(entry)
        elif isinstance(entry, str):
            tokens += to_be_continued(entry, facts, PARAM, media.budget, add_special=place == 0)
        else:
            raise RequestError("prompt must be texts and token ids.", param=PARAM)
    return token_prompt(tokens, facts, PARAM)


def _with_media(text: str, data: Any, facts: ModelFacts, media: MediaInputs) -> TextPrompt:
    """A text with a marker for each picture or sound, which are base64. Raises RequestError."""
    given = cast("list[Any]", data) if isinstance(data, list) else [data]
    texts = text.split(MARKER)
    if len(texts) != len(given) + 1:
        raise RequestError(
            f"prompt_string has {len(texts) - 1} times {MARKER}, and multimodal_data holds "
            f"{len(given)} images and audio files.",
            param=PARAM,
            hint=f"Write {MARKER} once for each.",
        )
    marked = texts[0]
    for place, (data, after) in enumerate(zip(given, texts[1:], strict=True)):
        where = f"multimodal_data[{place}]"
        if not isinstance(data, str) or not data:
            raise RequestError(f"{where} is no base64.", param=PARAM, hint="Send a file's bytes.")
        kind = kind_of(data)
        mark = media.mark(kind, data, (where, PARAM))
        if mark is None:
            why = "is no base64 of a file" if media.takes(kind) else media.reads(kind)
            raise RequestError(f"{where}: {why}.", param=PARAM)
        marked += mark + after
    return rendered_prompt(marked, facts, PARAM, media)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_PROJECT = "myproject\n"
_FILE = "filename\n"
_SNIPPET = "\n\n--- snippet ---\n\n"
_ROOM = 4  # the answer gets a quarter of the context, where it is not bounded by less


def _tokens(text: str, facts: ModelFacts, budget: Budget, param: str) -> list[int]:
    check_hopeless(text, len(text), facts, param, budget)
    return plain_tokens(text, facts, param, budget)


def place_of(
    body: InfillRequest, max_tokens: int | None, facts: ModelFacts, budget: Budget
) -> tuple[TextPrompt, Truncated | None]:
    """(the prompt, what was left out of it so that it fits). Raises RequestError.

        REPO project SEP name other ... SEP name PRE prefix prompt SUF suffix MID

    What does not fit is left out: of the other files the first ones, then of the prefix the
    beginning and of the suffix the end, three parts to one.
    """
    vocab = facts.vocab
    before, after, middle = vocab.infill
    if before is None or after is None or middle is None:
        raise NotSupportedError(
            "This model has no infill tokens.", hint="Serve a model for code completion."
        )
    for name in ("input_prefix", "input_suffix"):
        if getattr(body, name) is None:
            raise RequestError(f"{name} is missing.", param=name)
    prefix = _tokens(body.input_prefix or "", facts, budget, "input_prefix")
    suffix = _tokens(body.input_suffix or "", facts, budget, "input_suffix")
    written = _tokens(body.prompt or "", facts, budget, PARAM)
    others = _others(body, facts, budget)
    head = [vocab.bos] if vocab.adds_bos and vocab.bos is not None else []
    most = facts.max_length
    answer = min(most // _ROOM, most if max_tokens is None else max_tokens)
    room = most - answer - len(written) - len(head) - len((before, after, middle))
    if room < 0:
        raise ContextLengthError(most - answer - room, most, param="prompt", most=most - answer)
    missing = max(0, len(prefix) + len(suffix) - room)
    if missing:
        kept = max(room - len(suffix), room * 3 // 4)
        prefix = prefix[max(0, len(prefix) - kept) :]
        suffix = suffix[: room - len(prefix)]
    room -= len(prefix) + len(suffix)
    left_out = max(0, len(others) - room)
    found = (*others[left_out:], *head, before, *prefix, *written, after, *suffix, middle)
    truncated = Truncated(0, missing + left_out) if missing or left_out else None
    return TextPrompt(found, text=""), truncated


def _others(body: InfillRequest, facts: ModelFacts, budget: Budget) -> list[int]:
    tokens = partial(_tokens, facts=facts, budget=budget, param="input_extra")
    repo, separator = facts.vocab.infill_files
    found = [] if repo is None else [repo, *tokens(_PROJECT)]
    for extra in body.input_extra or ():
        if separator is None:
            found += tokens(_SNIPPET)
        else:
            found += [separator, *tokens(f"{extra.filename or 'tmp'}\n")]
        found += tokens(extra.text)
    return found if separator is None else [*found, separator, *tokens(_FILE)]


def _params(
    body: WritingFields, facts: ModelFacts, budget: Budget, param: str, n: int = 1
) -> GenerationParams:
    """Raises RequestError that names the field."""
    if body.id_slot is not None and body.id_slot >= 0:
        facts.slots.check(body.id_slot)
    check_alternatives(n_probs=body.n_probs)
    sampling = sampling_of(body, facts, budget)
    if body.post_sampling_probs and sampling.constraint is not None:
        raise RequestError(
            "post_sampling_probs goes with no grammar and no schema.", param="post_sampling_probs"
        )
    return GenerationParams(
        prompt_param=param,
        sampling=sampling,
        max_tokens=tokens_of(
            n_predict=body.n_predict, max_tokens=body.max_tokens, default=facts.settings.n_predict
        ),
        stop=stops_of(body.stop),
        n=n,
        logprobs=body.n_probs or None,
        as_drawn=bool(body.post_sampling_probs),
        tells_progress=bool(body.stream and body.return_progress),
    )


def infill_of(body: InfillRequest, facts: ModelFacts, budget: Budget) -> Generation:
    params = _params(body, facts, budget, "input_prefix")
    prompt, truncated = place_of(body, params.max_tokens, facts, budget)
    return Generation(prompts=(prompt,), params=params, truncated=truncated)


def completion_of(body: WritingRequest, facts: ModelFacts, budget: Budget) -> Generation:
    """Raises RequestError."""
    copies = 1 if body.n_cmpl is None else body.n_cmpl
    if not 1 <= copies <= SEQUENCES.most:
        raise RequestError(f"n_cmpl must be from 1 to {SEQUENCES.most}.", param="n_cmpl")
    params = _params(body, facts, budget, PARAM, copies)
    return Generation(prompts=prompts_of(body, facts, budget), params=params)
