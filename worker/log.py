"""structlog, set up once: prose to stderr, as console lines or as JSON."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import select
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

if TYPE_CHECKING:
    import structlog

LogFormat = Literal["console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


# Time, level, part, event, the other fields as text.
LogLine = tuple[str, str, str, str, str]
_MAX_RECENT = 50
_MAX_FIELDS_CHARS = 500
_APART = frozenset(" =\"'")
_SHOWN_APART = frozenset({"timestamp", "level", "part", "event", "exc_info", "console"})
_recent: deque[LogLine] = deque(maxlen=_MAX_RECENT)

# How long a line waits for the reader of standard error. Once one has waited in vain, the next
# lines do not wait until the reader reads again.
_PATIENCE_S = 0.1


class _Stderr:
    """Standard error. Its reader may go away or stop reading; a log line then neither fails nor
    waits, and what the pipe does not take is lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._patience = _PATIENCE_S
        self._copy: int | None = None

    def copy_to(self, path: str) -> None:
        """Append all that is written from now on to a file too. Raises OSError."""
        self._copy = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr is not sys.__stderr__:  # replaced by a progress bar or a test
                sys.stderr.write(text)
                return
            data = text.encode(errors="backslashreplace")
            if self._copy is not None:
                os.write(self._copy, data)
            with self._lock:
                while data and self._takes(sys.stderr.fileno()):
                    data = data[os.write(sys.stderr.fileno(), data[: select.PIPE_BUF]) :]

    def _takes(self, descriptor: int) -> bool:
        ready = bool(select.select([], [descriptor], [], self._patience)[1])
        self._patience = _PATIENCE_S if ready else 0
        return ready

    def flush(self) -> None:
        """Do nothing: `write` keeps nothing back."""


_stderr = _Stderr()


class _Foreign(logging.Handler):
    """Turns what libraries log through `logging` into lines of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        get(record.name).error(record.getMessage(), exc_info=record.exc_info)


def in_utf8(text: str) -> str:
    r"""A file's name as UTF-8 can write it: a byte that is none becomes \xNN."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def harmless(text: str) -> str:
    """Text from a file, a name or a network, in one line that does not control a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in in_utf8(text)
    )


def say(text: str) -> None:
    """Write prose to standard error. It never fails, and never waits long for a reader."""
    _stderr.write(text)


def fail(code: str, sentence: str) -> None:
    """Write the last line of a failed process, `error: CODE: sentence`, in the log's format."""
    text = f"error: {code}: {harmless(sentence)}"
    if _Settings.fmt == "json":
        _structlog().get_logger().error(text, code=code)
    else:
        say(f"{text}\n")


class _Settings:
    """What `configure` was told last; structlog hears of it when the first logger is made."""

    fmt: LogFormat = "console"
    level: int = logging.INFO


def configure(fmt: LogFormat, level: LogLevel = "info") -> None:
    """Send log lines of this level and above to stderr in `fmt`; debug has what llama.cpp says."""
    _Settings.fmt = fmt
    _Settings.level = logging.getLevelNamesMapping()[level.upper()]
    if "structlog" in sys.modules:
        _apply()


def copy_to(path: str) -> None:
    """Append each line to a file too, which only its owner may read. Raises OSError."""
    _stderr.copy_to(path)


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """The logger of one part of the worker; `name` appears as `part` on each line.

    A line may have a field `console`: a sentence that people read instead of event and fields, or
    an empty one where they read nothing. Programs, and people at the level debug, get all the rest.
    """
    return _structlog().get_logger(part=name)


def bind_request(**ids: str) -> None:
    """Show these, and no longer others, on each line that is logged for the request at hand."""
    variables = _structlog().contextvars
    variables.clear_contextvars()
    variables.bind_contextvars(**ids)


def request_ids() -> tuple[str | None, str | None]:
    """The id of the request at hand, None outside of one; and its correlation id, if it has one."""
    bound = _structlog().contextvars.get_contextvars()
    return bound.get("x_request_id"), bound.get("x_correlation_id")


def recent() -> list[LogLine]:
    """The last lines, oldest first."""
    return list(_recent)


@functools.cache
def _structlog() -> Any:
    """structlog, imported at the first line: a command that logs nothing does not wait for it."""
    import structlog

    _apply()
    return structlog


def _keep(_logger: object, _level: str, entry: structlog.typing.EventDict) -> Any:
    """Keep the line for who looks later, as text: what it tells of may go. No tracebacks."""
    error = entry.get("exc_info")
    fields = [
        f"{name}={value if _is_plain(value) else repr(value)}"
        for name, value in entry.items()
        if name not in _SHOWN_APART
    ]
    if error:
        kind = type(error) if isinstance(error, BaseException) else sys.exc_info()[0]
        fields.append(f"error={getattr(kind, '__name__', kind)}")
    text = " ".join(fields)[:_MAX_FIELDS_CHARS]
    event, part = str(entry["event"]), str(entry.get("part", ""))
    _recent.append((entry["timestamp"], entry["level"], part, event[:_MAX_FIELDS_CHARS], text))
    return entry


def _for_programs(_logger: object, _level: str, entry: structlog.typing.EventDict) -> Any:
    entry.pop("console", None)
    return entry


def _for_people(_logger: object, _level: str, entry: structlog.typing.EventDict) -> Any:
    """The sentence for people, if the line has one. Raises DropEvent where it is empty."""
    entry["timestamp"] = entry["timestamp"][:19].replace("T", " ")
    sentence = entry.pop("console", None)
    if sentence is None or _Settings.level <= logging.DEBUG:
        return entry
    if not sentence:
        raise _structlog().DropEvent
    return {name: entry[name] for name in ("timestamp", "level")} | {"event": sentence}


def _is_plain(value: object) -> bool:
    """Whether a value can be told from what follows it without quotes."""
    return isinstance(value, str) and value.isprintable() and _APART.isdisjoint(value)


def _apply() -> None:
    import structlog

    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        _keep,
    ]
    if _Settings.fmt == "json":
        tail: list[structlog.typing.Processor] = [
            _for_programs,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    else:
        # Plain tracebacks: the pretty ones print local variables, prompts and keys among them.
        tail = [
            _for_people,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(),
                exception_formatter=structlog.dev.plain_traceback,
                pad_event_to=0,
                pad_level=False,
            ),
        ]
    structlog.configure(
        processors=[*shared, *tail],
        wrapper_class=structlog.make_filtering_bound_logger(_Settings.level),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _stderr)),
        cache_logger_on_first_use=False,
    )
    # Errors only: what libraries warn about is what clients sent, and clients are told.
    logging.lastResort = _Foreign(logging.ERROR)
