"""GPT-OSS's channels: analysis is thought, final is content, a recipient makes a call.

<|channel|>analysis<|message|>Rain?<|end|><|start|>assistant<|channel|>commentary
to=functions.sky <|constrain|>json<|message|>{"at": "Rome"}<|call|>
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence

import msgspec

from worker.chat.events import Content, Thought
from worker.chat.message import Tool
from worker.chat.reading.answer import CallGrammar
from worker.chat.reading.calls import Calls
from worker.chat.reading.json_text import call_in_json, whole_call
from worker.chat.reading.lark import Lark, row
from worker.chat.reading.source import DamagedError, Steps
from worker.chat.reading.stepwise import StepwiseReader

START, CHANNEL, CONSTRAIN, MESSAGE, END = (
    "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"
)  # fmt: skip
MARKERS = (START, CHANNEL, CONSTRAIN, MESSAGE, END)
_OPENING = f"{START}assistant"
_TO = "to=functions."
ANALYSIS = f"{CHANNEL}analysis{MESSAGE}"
TO_FINAL = f"{END}{_OPENING}{CHANNEL}final{MESSAGE}"
_BODY_ENDS = (END, START, CHANNEL, "<|call|>", "<|return|>")
# Models write the recipient after the role or after the channel.
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
_CHANNEL = re.compile(re.escape(CHANNEL) + r"\s*(\w+)")
_MAX_HEADER = 512


class HarmonyHeader(msgspec.Struct, frozen=True):
    """Of a message: who shall get it, on which channel."""

    recipient: str
    channel: str


def header_of(text: str) -> HarmonyHeader:
    """What the text before `<|message|>` says; both parts may be missing."""
    recipient, channel = _RECIPIENT.search(text), _CHANNEL.search(text)
    return HarmonyHeader(recipient[1] if recipient else "", channel[1] if channel else "")


class HarmonyReader(StepwiseReader):
    """Reads an answer message by message. What has no header is content."""

    def __init__(
        self, tools: Sequence[Tool], *, prompt: str, inline: bool = False, parallel: bool = True
    ) -> None:
        """As in `ChatFormat.reader`; inline: thoughts stay in the content, with their header."""
        opening = prompt.rpartition(_OPENING)[2] if _OPENING in prompt else ""
        before, is_open, _ = opening.rpartition(MESSAGE)
        self._open = header_of(before) if is_open else None
        super().__init__("" if is_open else opening)
        self._calls = Calls(self._source, tools, self._events.append, parallel=parallel)
        self._inline = inline
        self._thinks = False

    @property
    def is_thinking(self) -> bool:
        """Whether what has been read ends inside a thought that is told as one."""
        return self._thinks

    def _read(self) -> Generator[None, None, None]:
        source = self._source
        if self._open is not None:
            yield from self._message(self._open)
        while not source.is_ended or source.rest:
            source.mark()
            header = yield from self._header()
            if header is None:
                mark = yield from source.one_of(*MARKERS)
                if mark is not None:
                    self._events.append(Content(mark))
                yield from self._text(Content)
            else:
                yield from self._message(header)

    def _header(self) -> Steps[HarmonyHeader | None]:
        """The next message's header; None: something else comes."""
        source = self._source
        yield from source.space()
        found = yield from source.one_of(START, CHANNEL, CONSTRAIN, "to=", MESSAGE)
        if found is None:
            if source.is_ended and not source.rest:
                return None
            source.rewind()
            return None
        text = "" if found == MESSAGE else found
        if found != MESSAGE:
            try:
                more, _ = yield from source.until(
                    MESSAGE, fits=lambda text: len(text) <= _MAX_HEADER
                )
            except DamagedError:
                source.rewind()
                return None
            text += more
        return header_of(text)

    def _message(self, header: HarmonyHeader) -> Steps[None]:
        if header.recipient and header.recipient != "user":
            yield from self._call(header.recipient)
        elif header.channel == "analysis" and not self._inline:
            self._thinks = True
            yield from self._text(Thought)
            self._thinks = False
        else:
            if header.channel == "analysis":
                self._events.append(Content(self._source.since_mark))
            yield from self._text(Content)

    def _text(self, kind: type[Content | Thought]) -> Steps[None]:
        """The body up to its end; an end that is none in a body is not shown."""
        source = self._source
        while True:
            text, end = source.take(_BODY_ENDS)
            if text:
                self._events.append(kind(text))
            if end is not None:
                break
            if source.is_ended:
                return
            yield
        if end in (START, CHANNEL):
            source.skip(-len(end))

    def _call(self, name: str) -> Steps[None]:
        source, calls = self._source, self._calls
        begun = calls.num_begun
        try:
            yield from source.space()
            came = yield from source.peek(2)
            if came == "<|":
                whole_call(calls, name, "{}")
            else:
                yield from call_in_json(source, calls, name)
        except DamagedError:
            if calls.num_begun > begun:
                calls.give_up()
            self._events.append(Content(source.since_mark))
            yield from self._text(Content)
            return
        yield from source.space()
        yield from source.one_of(*_BODY_ENDS[:1], *_BODY_ENDS[3:])


class Harmony(msgspec.Struct, frozen=True):
    """All texts are fixed."""

    @property
    def name(self) -> str:
        return "harmony"

    @property
    def markers(self) -> tuple[str, ...]:
        return MARKERS

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar:  # noqa: ARG002
        """After a recipient's prefix; one call ends an answer."""
        call = lark.one_of(
            [row(lark.text(tool.name), _more(lark), lark.arguments(tool)) for tool in tools]
        )
        return CallGrammar(_TO, call)

    def answer(self, lark: Lark, *, call: str = "", body: str = "") -> str:
        """An answer that is a call or of this body, after its thoughts; an empty one may not come.

        It follows an opening, with which the prompt ends.
        """
        final = f"{CHANNEL}final{MESSAGE}"
        thought = lark.rule(row(lark.text(ANALYSIS), lark.until(END), lark.text(_OPENING)))
        kinds: list[str] = []
        if call:
            kinds += [f'" {_TO}" {call}', row(lark.text(f"{CHANNEL}commentary {_TO}"), call)]
        if body:
            kinds.append(row(lark.text(final), body))
        return f"{thought}* {lark.one_of(kinds)}"


def _more(lark: Lark) -> str:
    """A header's rest, after the recipient."""
    channel = lark.text(f"{CHANNEL}commentary")
    kind = f'" " ({lark.text(CONSTRAIN)})? "json"'
    return row(f"({kind} | {channel} ({kind})?)?", lark.text(MESSAGE))
