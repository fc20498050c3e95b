"""POST /v1/decisions as OpenAI's clients send it, and what they get. Null means not given."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from worker.api.decisions.answer import Diagnostics
from worker.api.intake.bounds import items
from worker.limits import LEVELS, MESSAGES, OPTIONS, QUESTIONS


class _Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What OpenAI does not know is refused: an answer without it would be about something else."""


class CacheBreakpoint(_Strict):
    """Changes no answer here: prefixes are found without it."""

    mode: str


class CacheOptions(_Strict):
    """Changes no answer here."""

    mode: str | None = None
    ttl: str | None = None


class InputTextPart(_Strict, tag_field="type", tag="input_text"):
    """A text."""

    text: str
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class ImagePart(_Strict, tag_field="type", tag="input_image"):
    """A picture: a data URL or an address. detail: changes no answer here"""

    image_url: str
    detail: str | None = None
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class JsonPart(_Strict, tag_field="type", tag="input_json"):
    """An object, or a list of objects."""

    data: dict[str, Any] | list[dict[str, Any]]
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class SpokenPart(_Strict, tag_field="type", tag="output_text"):
    """What an assistant said."""

    text: str


class RefusalPart(_Strict, tag_field="type", tag="refusal"):
    """How an assistant refused."""

    refusal: str


ItemPart = InputTextPart | ImagePart | JsonPart | SpokenPart | RefusalPart
Instructions = str | list[InputTextPart | ImagePart | JsonPart]
Role = Literal["user", "developer", "system", "assistant"]
ItemKind = Literal[
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
]


class DecisionItem(_Strict):
    """A message, a call or what it returned.

    type       message if it is not given
    role, content, phase
               of a message; phase changes no answer here
    call_id    of a call, and of what it returned
    name, namespace, arguments
               of a function's call; arguments are JSON
    input      of a custom tool's call: any text
    output     what a call returned
    id, status
               change no answer here
    """

    type: ItemKind | None = None
    role: Role | None = None
    content: str | list[ItemPart] | None = None
    phase: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: str | list[ItemPart] | None = None
    id: str | None = None
    status: str | None = None


class PredicateQuestion(_Strict, tag_field="type", tag="predicate"):
    """Whether a statement is true."""

    instructions: Instructions
    name: str | None = None


class ChoiceOption(_Strict):
    """value: comes back; a boolean and a text are different. description: what it means"""

    value: str | bool
    description: str | None = None


class ChoiceQuestion(_Strict, tag_field="type", tag="choice"):
    """Which of the choices fits."""

    instructions: Instructions
    choices: Annotated[list[ChoiceOption], items(OPTIONS.most, least=2)]
    name: str | None = None


class ScoreLevel(_Strict):
    """description: what it means"""

    label: str
    description: str | None = None


class ScoreQuestion(_Strict, tag_field="type", tag="score"):
    """Which level fits; the lowest comes first."""

    instructions: Instructions
    levels: Annotated[list[ScoreLevel], items(LEVELS.most, least=2)]
    name: str | None = None


class DecisionRequest(_Strict):
    """POST /v1/decisions.

    input      what the questions are about: a text, or items
    questions  answered in this order
    model      anything: one worker serves one model, or the name of an adapter
    prompt_cache_key, prompt_cache_options, safety_identifier
               change no answer here
    """

    shows_media: ClassVar[bool] = True
    names_places: ClassVar[bool] = True

    input: Annotated[str | list[DecisionItem], items(MESSAGES.most, least=1)]
    questions: Annotated[
        list[PredicateQuestion | ChoiceQuestion | ScoreQuestion], items(QUESTIONS.most, least=1)
    ]
    model: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: CacheOptions | None = None
    safety_identifier: str | None = None


class PredicateAnswer(msgspec.Struct, tag_field="type", tag="predicate"):
    """probability: that the statement is true"""

    name: str | None
    probability: float
    diagnostics: Diagnostics


class ChoiceProbability(msgspec.Struct):
    """Of one option."""

    value: str | bool
    probability: float


class ChoiceAnswer(msgspec.Struct, tag_field="type", tag="choice"):
    """choice: the likeliest option. confidence: 0 if all are alike, 1 if it is certain"""

    name: str | None
    choice: str | bool
    confidence: float
    probabilities: list[ChoiceProbability]
    diagnostics: Diagnostics


class LevelProbability(msgspec.Struct):
    """Of one level; value: its place from 0"""

    value: int
    label: str
    probability: float


class ScoreAnswer(msgspec.Struct, tag_field="type", tag="score"):
    """score: the mean of the levels' places. confidence: how near to the likeliest level it is"""

    name: str | None
    score: float
    confidence: float
    probabilities: list[LevelProbability]
    diagnostics: Diagnostics


class DecisionInputDetails(msgspec.Struct):
    """Both 0: the usage tells of the request, not of the cache."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class DecisionOutputDetails(msgspec.Struct):
    """Nothing is written."""

    reasoning_tokens: int = 0


class DecisionUsage(msgspec.Struct):
    """Tokens of the state, once, and of all questions."""

    input_tokens: int
    input_tokens_details: DecisionInputDetails
    output_tokens: int
    output_tokens_details: DecisionOutputDetails
    total_tokens: int


class DecisionReply(msgspec.Struct):
    """Answers in the order of the questions."""

    model: str
    answers: list[PredicateAnswer | ChoiceAnswer | ScoreAnswer]
    usage: DecisionUsage
