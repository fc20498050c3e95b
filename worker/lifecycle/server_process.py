"""A `worker serve` process of our own, on a free port of the loopback interface."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from worker.child import command
from worker.errors import BackendError
from worker.settings import OPTIONS

START_TIMEOUT_S = 600.0
_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.02
_ERROR = "error: "


class ServerError(BackendError):
    """The server ended before it was ready.

    reason      its last words, `CODE: a sentence`; empty: none
    returncode  the process's own
    """

    def __init__(self, reason: str, returncode: int) -> None:
        super().__init__(
            f"The server ended with code {returncode} before it was ready"
            + (f" ({reason})" if reason else "")
            + "."
        )
        self.reason, self.returncode = reason, returncode


class ServerAddress(msgspec.Struct, frozen=True):
    """Where a server of ours listens, and its process."""

    host: str
    port: int
    pid: int


@contextlib.contextmanager
def server_process(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    until: str = "ready",
    group: int | None = None,
) -> Generator[ServerAddress]:
    """A server that was started with these words; stopped afterwards, whatever happens.

    until  the event of its log that is waited for
    group  its process group, 0: one of its own, which Ctrl-C does not reach; None: ours
    Raises ServerError.
    """
    # When we end, however that is, its standard input ends, and so does the server.
    options = (
        "--host 127.0.0.1 --port 0 --ssl-cert-file= --ssl-key-file= --log-format json "
        "--log-level info --die-with-parent stdin"
    ).split()
    words = list(words)
    end = words.index("--") if "--" in words else len(words)  # no option is read behind it
    words[end:end] = options
    # The server appends and we read through another open file: with one for both, our going back to
    # the beginning would make the server write over its first lines.
    with tempfile.NamedTemporaryFile("r") as log, Path(log.name).open("ab") as written:
        process = subprocess.Popen(  # noqa: S603  (our own interpreter and module)
            command("worker", "serve", *words), stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=written, env=environment, process_group=group,
        )  # fmt: skip
        try:
            yield _wait(process, log, until)
        finally:
            _stop(process)


def clean_environment() -> dict[str, str]:
    """The environment without the variables that stand for options: the run has read them."""
    ours = {name for option in OPTIONS for name in option.variables}
    return {name: value for name, value in os.environ.items() if name not in ours}


def _wait(process: subprocess.Popen[bytes], log: IO[str], until: str) -> ServerAddress:
    """Poll the log until it has the event."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        log.seek(0)
        lines = log.read().splitlines()
        events = {entry.event: entry for entry in map(_entry, lines)}
        if until in events and "listening" in events:
            host, _, port = events["listening"].url.removeprefix("http://").rpartition(":")
            return ServerAddress(host, int(port), process.pid)
        if ended:
            told = [event for event in events if event.startswith(_ERROR)]
            raise ServerError("".join(told[-1:]).removeprefix(_ERROR), process.returncode)
        time.sleep(_POLL_S)
    raise BackendError(f"The server was not ready within {START_TIMEOUT_S:.0f} s.")


class _LogEntry(msgspec.Struct):
    event: str = ""
    url: str = ""


def _entry(line: str) -> _LogEntry:
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(line, type=_LogEntry)
    return _LogEntry()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()
