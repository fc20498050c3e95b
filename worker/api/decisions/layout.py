"""The prompt of a decision: its state, and behind it one question at a time.

    template's opening, state, blank line | question, options, template's end, answer's opening
    [ the state's tokens                  )[ a suffix for each question                        )

The first part is computed once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec

from worker.api.decisions.question import Decision
from worker.api.decisions.tokens import MARK, PromptTokens
from worker.api.intake.facts import ModelFacts
from worker.api.intake.media_inputs import MediaInputs
from worker.api.intake.prompts import to_be_continued
from worker.chat.format import ChatFormat
from worker.chat.message import Message
from worker.chat.thinking import Thinking
from worker.engine.request import Medium, Prompt, check_length
from worker.errors import RequestError

_QUESTION = f"{MARK}q"
_CONTENT = re.compile(rf"{MARK}m(\d+)z")
_BLANK = "\n\n"
_PLAIN_TAIL = "\nAnswer:"
_SPOKEN = ("system", "user", "assistant")


class PromptLayout:
    """How one decision's prompt is written. Made in a thread: it renders and tokenizes.

    tail      text behind each question
    is_plain  there is no chat template
    """

    def __init__(
        self, decision: Decision, chat: ChatFormat | None, facts: ModelFacts, media: MediaInputs
    ) -> None:
        """Raises RequestError if the template has no place for a message, or no answer without
        reasoning."""
        self._facts, self._media, self._param = facts, media, decision.param
        self._tokens = PromptTokens(facts, media, decision.param)
        self._behind: dict[str, tuple[int, ...] | None] = {}  # each question asks for all labels
        self.is_plain = chat is None
        if chat is None:
            self._before = _plain(decision.state)
            self.tail = _PLAIN_TAIL
            contents = [message.content or "" for message in decision.state]
        else:
            turns = _turns(decision.state)
            self._before, self.tail = _render(turns, chat, decision.param)
            contents = [message.content or "" for message in turns]
        self._contents = [*map(self._tokens.as_text, contents)]

    def state(self) -> Prompt:
        """Its tokens and media. Raises RequestError, also for a text that no context holds."""
        text = _CONTENT.sub(lambda found: self._contents[int(found[1])], self._before)
        tokens, media = self._tokens.read(text, self._begin)
        check_length(len(tokens), self._facts.max_length, self._param, output=1)
        return Prompt(tuple(tokens), checkpoints=(len(tokens),), media=media)

    def suffix(self, question: str) -> tuple[tuple[int, ...], tuple[Medium, ...]]:
        """Tokens of a question and of the tail, and the media among them, which count from 0."""
        asked = self._tokens.as_text(question) + self.tail
        tokens, media = self._tokens.read(asked, self._tokens.inside)
        return tuple(tokens), media

    def behind_tail(self, text: str) -> tuple[int, ...] | None:
        """The tokens of a text with which an answer begins, as the model would write them; None:
        there it changes the tokens before it."""
        if text not in self._behind:
            before, whole = self._tail_tokens, self._tokens.inside(self.tail + text)
            is_kept = whole[: len(before)] == before
            self._behind[text] = tuple(whole[len(before) :]) if is_kept else None
        return self._behind[text]

    def answer(self, text: str) -> tuple[int, ...]:
        """The tokens of a client's text as an answer."""
        text = f" {text}" if self.is_plain else text
        first, *others = self._tokens.pieces(self._tokens.as_text(text))
        begin = self.behind_tail(first)
        tokens = self._tokens.inside(first) if begin is None else [*begin]
        for other in others:
            tokens += self._tokens.inside(other)
        return tuple(tokens)

    @cached_property
    def _tail_tokens(self) -> list[int]:
        return self._tokens.inside(self.tail)

    def _begin(self, text: str) -> list[int]:
        return to_be_continued(text, self._facts, self._param, self._media.budget)


def _mark(place: int) -> str:
    return f"{MARK}m{place}z"


def _plain(state: Sequence[Message]) -> str:
    """Of a model that continues text: who speaks is told where there are several messages."""
    if len(state) == 1:
        return _mark(0) + _BLANK
    return "".join(f"{each.role}: {_mark(place)}{_BLANK}" for place, each in enumerate(state))


def _turns(state: Iterable[Message]) -> list[Message]:
    """The state as turns of user and assistant, the last one the user's, with the system's words in
    front. Calls and their results are told as text: a transcript is read here, not continued."""
    turns: list[Message] = []
    for message in state:
        role, content = message.role, (message.content or "").strip()
        if message.calls:
            calls = [f"[call {call.name}: {call.arguments}]" for call in message.calls]
            content = "\n".join(filter(None, (content, *calls)))
        if role == "developer":
            role = "system"
        if role not in _SPOKEN:
            content, role = f"[{role} {message.name or ''}".rstrip() + f": {content}]", "user"
        if role == "system" and any(turn.role != "system" for turn in turns):
            role = "user"
        if turns and turns[-1].role == role:
            content = f"{turns.pop().content}{_BLANK}{content}"
        turns.append(Message(role=role, content=content))
    if not turns or turns[-1].role != "user":
        turns.append(Message(role="user", content=""))
    return turns


def _render(turns: Sequence[Message], chat: ChatFormat, param: str) -> tuple[str, str]:
    """The text before the question, with marks for what the turns say; and the text behind it."""
    last = len(turns) - 1
    marked = [
        msgspec.structs.replace(turn, content=_mark(place)) for place, turn in enumerate(turns)
    ]
    said = f"{_mark(last)}{_BLANK}" if turns[last].content else ""
    marked[last] = msgspec.structs.replace(marked[last], content=f"{said}{_QUESTION}")
    try:
        text = chat.conversation(
            marked,
            (),
            thinking=Thinking(is_on=False),
            add_generation_prompt=True,
            continues=False,
            variables={},
        ).text
    except RequestError as error:
        raise RequestError(error.message, param=param, hint=error.hint, code=error.code) from None
    before, mark, tail = text.partition(_QUESTION)
    shown = [int(number) for number in _CONTENT.findall(before)]
    missing = {place for place, turn in enumerate(turns) if turn.content} - {*shown}
    if not mark or missing or len(shown) > len({*shown}) or _QUESTION in tail:
        raise RequestError(
            "The model's chat template does not show each message of the state once.",
            param=param,
            hint="Send the state as one text, or start the worker with another --chat-template.",
        )
    return before, tail + _without_thought(chat, text, param)


def _without_thought(chat: ChatFormat, prompt: str, param: str) -> str:
    """What ends a thought, or says that there is none, behind a prompt."""
    end, thoughts = chat.thought_end(prompt), chat.thoughts
    if end is None or prompt.rstrip().endswith(thoughts.tags.close or MARK):
        return ""
    if thoughts.is_inside(prompt):
        added = end.text
    elif thoughts.variables(Thinking(is_on=False)):
        return ""
    else:
        added = end.opens[0] + end.text
    if thoughts.is_inside(prompt + added):
        raise RequestError(
            "The model reasons before each answer, and its chat template cannot close that.",
            param=param,
            hint="Serve a model that answers at once, or start with another --chat-template.",
            code="always_reasons",
        )
    return added
