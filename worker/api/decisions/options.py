"""Options of a question as the model reads them, each unlike all others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from worker.api.decisions.place import BodyPlace
from worker.api.decisions.question import AnswerOption
from worker.errors import RequestError, quantity
from worker.limits import LEVELS, OPTIONS, QUESTIONS

GivenOption = tuple[str | bool, str | None]  # what the client gets back, and what it means

_WORDS = {True: "true", False: "false"}


def statement_options(
    true: str | None = None, false: str | None = None
) -> tuple[AnswerOption, ...]:
    """true, false: when each of them is right"""
    return AnswerOption(True, _WORDS[True], true or None), AnswerOption(
        False, _WORDS[False], false or None
    )


def choice_options(
    given: Sequence[GivenOption], place: BodyPlace, least: int, *, is_list: bool
) -> tuple[AnswerOption, ...]:
    """In the client's order. A text that reads as a boolean beside it stands in quotes.

    place: of the list, or of the object whose names they are. Raises RequestError.
    """
    check_count(len(given), place, least, OPTIONS.most)
    spoken = {_WORDS[value] for value, _ in given if isinstance(value, bool)}
    found: list[AnswerOption] = []
    for value, description in given:
        text = _WORDS[value] if isinstance(value, bool) else value
        if value in spoken:
            text = f'"{value}"'
        found.append(AnswerOption(value, text, description or None))
    steps = range(len(given)) if is_list else (str(value) for value, _ in given)
    return _distinct(found, map(place.at, steps))


def scale_options(
    given: Sequence[tuple[str, str | None]], place: BodyPlace, least: int
) -> tuple[AnswerOption, ...]:
    """The lowest first. Raises RequestError; see `choice_options`."""
    check_count(len(given), place, least, LEVELS.most)
    found = [AnswerOption(label, label, told or None) for label, told in given]
    return _distinct(found, map(place.at, range(len(given))))


def check_count(count: int, place: str, least: int, most: int) -> None:
    """Raise RequestError for a list that is too short or too long."""
    if not least <= count <= most:
        raise RequestError(
            f"{place} must have {least} to {most} entries, not {count}.", param=place
        )


def check_questions(count: int) -> None:
    """Raise RequestError for none, or for too many."""
    if not 1 <= count <= QUESTIONS.most:
        raise RequestError(
            f"questions must be 1 to {QUESTIONS.most}; {quantity(count, 'question')} came.",
            param="questions",
        )


def _distinct(options: list[AnswerOption], places: Iterable[BodyPlace]) -> tuple[AnswerOption, ...]:
    seen: set[str] = set()
    for option, where in zip(options, places, strict=True):
        if not option.text.strip():
            raise RequestError(f"{where} is empty.", param=where)
        if option.text in seen:
            raise RequestError(f"{where} is there twice: {option.text[:100]}", param=where)
        seen.add(option.text)
    return tuple(options)
