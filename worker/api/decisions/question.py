"""A state and typed questions about it, whichever API asked; and how each was answered."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.api.intake.media_inputs import MediaInputs
from worker.chat.message import Message
from worker.model.calibration import PROMPT_VERSION, QuestionKind, ScoringMode


class AnswerOption(msgspec.Struct, frozen=True):
    """One of the answers that a question allows.

    value        what the client gets back
    text         as the model reads and would write it; unlike those of all other options
    description  what it means; None: nothing was said
    meaning      the same where it is no text, as it was sent
    """

    value: str | bool
    text: str
    description: str | None = None
    meaning: Any = None


class TypedQuestion(msgspec.Struct, frozen=True):
    """What is asked about the state.

    kind     statement: whether it is true, options are true and false in this order;
             choice: one of the options, in the client's order; scale: levels, the lowest first
    place    where it stands in the body, to name in errors: "questions[3]", "questions.urgent"
    name     the client's, None where it gave none
    instructions  text; JSON values are written as JSON
    asked    the same where they are no text, as they were sent
    """

    kind: QuestionKind
    place: str
    instructions: str
    options: tuple[AnswerOption, ...]
    name: str | None = None
    asked: Any = None


class Decision(msgspec.Struct, frozen=True):
    """
    state      what the model reads first, as messages of a chat
    param      the client's field that it comes from, to name in errors
    media      whose marks stand in the state, in instructions and in descriptions of options
    document   the state as it was sent, any JSON value; None: what the messages say
    images     marks of pictures that stand before that document
    """

    state: tuple[Message, ...]
    questions: tuple[TypedQuestion, ...]
    param: str = "input"
    media: MediaInputs = msgspec.field(default_factory=MediaInputs)
    document: Any = None
    images: tuple[str, ...] = ()


class AnswerReading(msgspec.Struct, frozen=True):
    """How a question was answered.

    probabilities  of the options in the question's order, float64, their sum is 1
    label_mass     probability that the model wrote any of the options, over its whole vocabulary,
                   mean of the orders
    orders         in how many orders the options were shown
    flips          in how many of these another option was the likeliest than in the mean
    mode           letters or texts
    temperature    by which a calibration divided the log-probabilities; None: there is none
    prompt_version of the prompts that it was asked with
    """

    probabilities: tuple[float, ...]
    label_mass: float
    orders: int
    flips: int
    mode: ScoringMode
    temperature: float | None = None
    prompt_version: str = PROMPT_VERSION
