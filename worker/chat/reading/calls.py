"""The calls of one answer, told as they are read."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Callable, Sequence

from worker.chat.message import Tool
from worker.chat.reader import Arguments, CallBegun, CallEnded, ChatEvent
from worker.chat.reading.source import DamagedError, TextSource

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_ALPHANUMERICS = string.ascii_letters + string.digits


def new_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def nine_alphanumerics() -> str:
    """As Mistral's templates demand it."""
    return "".join(secrets.choice(_ALPHANUMERICS) for _ in range(9))


class Calls:
    """Tells the events of calls.

        yield from ...            the name is read
        calls.begin(name)         CallBegun
        calls.add(text)           Arguments
        calls.end()               CallEnded

    tools      those that may be called, by name
    is_open    a call has begun and not ended
    num_begun  calls that have begun
    """

    def __init__(
        self,
        source: TextSource,
        tools: Sequence[Tool],
        tell: Callable[[ChatEvent], None],
        *,
        make_id: Callable[[], str] = new_id,
        parallel: bool = True,
        is_trial: bool = False,
    ) -> None:
        """
        parallel  False tells only the first call
        is_trial  what is read may be given back whole
        """
        self.tools = {tool.name: tool for tool in tools}
        self.is_open = False
        self.num_begun = 0
        self._source = source
        self._tell = tell
        self._make_id = make_id
        self._parallel = parallel
        self._is_trial = is_trial
        self._ids: set[str] = set()

    def trial(self) -> Calls:
        """Others of the same tools, of which nothing is told."""
        return Calls(self._source, tuple(self.tools.values()), lambda _: None, is_trial=True)

    def may_be(self, name: str) -> bool:
        """Whether a tool's name begins so."""
        return any(known.startswith(name) for known in self.tools)

    def check(self, name: str) -> None:
        """Raise DamagedError where no tool has this name."""
        if name not in self.tools:
            raise DamagedError

    def begin(self, name: str, call_id: str = "") -> None:
        """A call whose arguments have begun as an object.

        call_id: the model's own; another is made where it cannot be one. Raises DamagedError where
        no tool has this name.
        """
        self.check(name)
        if not _ID.fullmatch(call_id) or call_id in self._ids:
            call_id = self._make_id()
        self._ids.add(call_id)
        self.is_open = True
        self.num_begun += 1
        self._say(CallBegun(self._index, call_id, name))

    def add(self, text: str) -> None:
        if text:
            self._say(Arguments(self._index, text))

    def end(self) -> None:
        self._say(CallEnded(self._index))
        self.is_open = False
        self.settle()

    def settle(self) -> None:
        """What was read is a part of calls. Where what follows is damaged, it is not given back."""
        if not self._is_trial:
            self._source.mark()

    def give_up(self) -> None:
        """The call that has begun is none."""
        self.is_open = False

    @property
    def _index(self) -> int:
        return self.num_begun - 1

    def _say(self, event: ChatEvent) -> None:
        if self._parallel or self.num_begun == 1:
            self._tell(event)
