"""A `worker serve` process of our own, on a free port of the loopback interface."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import IO

import msgspec

from worker.errors import BackendError
from worker.settings import OPTIONS, Settings

START_TIMEOUT_S = 600.0
_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.02
_TOLD_AT_LAST = "large pages"
# The settings of a run that its server gets; the others do not bear on speed or memory.
_TOLD = frozenset({
    "ctx_size", "parallel", "threads", "threads_batch", "batch_size", "ubatch_size", "backend",
    "n_gpu_layers", "device", "tensor_split", "split_mode", "main_gpu", "cache_type_k",
    "cache_type_v", "flash_attn", "mmap", "draft", "max_stall_ms",
})  # fmt: skip


class ServerAddress(msgspec.Struct, frozen=True):
    """Where a server of ours listens, and its process."""

    host: str
    port: int
    pid: int


@contextlib.contextmanager
def serving(model: Path, settings: Settings) -> Generator[ServerAddress]:
    """A server that is ready, its memory in large pages; stopped afterwards, whatever happens.

    Raises BackendError.
    """
    # -P: a folder named `worker` where we happen to stand is not ours.
    command = [sys.executable, "-P", "-m", "worker", "serve", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", "0", "--log-format", "json"]
    # When we end, however that is, its standard input ends, and so does the server.
    command += ["--die-with-parent", "stdin", *arguments_of(settings)]
    # The server appends and we read through another open file: with one for both, our going back to
    # the beginning would make the server write over its first lines.
    with tempfile.NamedTemporaryFile("r") as log, Path(log.name).open("ab") as written:
        process = subprocess.Popen(  # noqa: S603  (our own interpreter and module)
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=written,
            env=clean_environment(),
        )  # fmt: skip
        try:
            yield _wait(process, log)
        finally:
            _stop(process)


def arguments_of(settings: Settings) -> list[str]:
    """The command line's words for the settings that bear on speed and memory; defaults none."""
    default, words = Settings(), dict[str, str]()
    flags: dict[str, str] = {}
    for option in reversed(OPTIONS):  # the first option of a field is the plain one
        flags[option.field] = option.flags[0]
    for field in sorted(_TOLD):
        value = getattr(settings, field)
        if value == getattr(default, field):
            continue
        if isinstance(value, tuple):
            words[flags[field]] = ",".join(map(str, value))  # pyright: ignore
        elif isinstance(value, bool):
            words[flags[field]] = "on" if value else "off"
        else:
            words[flags[field]] = str(value)
    if settings.lora:
        words["--lora-scaled"] = ",".join(f"{each.file}:{each.scale}" for each in settings.lora)
    return [word for pair in words.items() for word in pair]


def clean_environment() -> dict[str, str]:
    """The environment without the variables that stand for options: the run has read them."""
    ours = {name for option in OPTIONS for name in option.variables}
    return {name: value for name, value in os.environ.items() if name not in ours}


def _wait(process: subprocess.Popen[bytes], log: IO[str]) -> ServerAddress:
    """Poll the log until the model is loaded and nothing is moved any more."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        log.seek(0)
        lines = log.read().splitlines()
        events = {entry.event: entry for entry in map(_entry, lines)}
        if _TOLD_AT_LAST in events and "listening" in events:
            host, _, port = events["listening"].url.removeprefix("http://").rpartition(":")
            return ServerAddress(host, int(port), process.pid)
        if ended:
            last = next((line for line in reversed(lines) if line.startswith("error: ")), "")
            raise BackendError(
                f"The server ended with code {process.returncode} before it was ready"
                + (f" ({last.removeprefix('error: ')})" if last else "")
                + "."
            )
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
