"""The file of a batch's answers: what an earlier run left there, and lines that are appended."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Generator
from pathlib import Path
from typing import IO

from worker.batches.line import AnsweredLine, read_answer, write_line
from worker.errors import UsageError
from worker.files import atomic_write, lock

# Lines, and seconds, after which what was appended is brought to the disk.
_GROUP, _GROUP_S = 64, 1.0


class OutputFile:
    """Appends lines in groups; each group is on the disk before the next one begins.

    answered  custom_ids whose answers an earlier run left there
    """

    def __init__(self, file: IO[bytes], answered: set[str]) -> None:
        self.answered = answered
        self._file = file
        self._lines: list[bytes] = []
        self._since = time.monotonic()

    def append(self, line: AnsweredLine) -> None:
        self._lines.append(write_line(line))
        self.flush_if_due()

    def flush_if_due(self) -> None:
        """Write if enough lines, or any for long enough, wait for it."""
        if len(self._lines) >= _GROUP or time.monotonic() - self._since >= _GROUP_S:
            self.flush()

    def flush(self) -> None:
        """Write what waits. Raises OSError."""
        lines, self._lines, self._since = self._lines, [], time.monotonic()
        if lines:
            self._file.write(b"".join(lines))
            self._file.flush()
            with contextlib.suppress(OSError):  # a pipe, or a file system that cannot
                os.fsync(self._file.fileno())


@contextlib.contextmanager
def output_file(name: str) -> Generator[OutputFile]:
    """The file of that name, which may have answers already. What waits is written at the end.

    Lines that are no answers with 2xx are dropped, so that they are asked again, and so is a last
    line that was cut. Raises UsageError if another process writes it, or if it is no such file.
    """
    path = Path(name)
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        with path.open("wb") as file, _flush_at_end(OutputFile(file, set())) as output:
            yield output
        return
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(_open_locked(path))
        answered, is_whole = _read(path, file, None)
        if not is_whole:
            with atomic_write(path, durable=True) as partial, partial.open("wb") as whole:
                file.seek(0)
                _read(path, file, whole)
            file = stack.enter_context(_open_locked(path))
        yield stack.enter_context(_flush_at_end(OutputFile(file, answered)))


@contextlib.contextmanager
def _flush_at_end(output: OutputFile) -> Generator[OutputFile]:
    try:
        yield output
    finally:
        output.flush()


def _open_locked(path: Path) -> IO[bytes]:
    file = path.open("a+b")
    if not lock(file):
        file.close()
        raise UsageError(
            f"Another process writes {path.name}.", hint="Wait for it, or name another file."
        )
    file.seek(0)
    return file


def _read(path: Path, file: IO[bytes], copy: IO[bytes] | None) -> tuple[set[str], bool]:
    """The custom_ids of answers, which are copied; and whether there is nothing else."""
    answered, is_whole = set[str](), True
    for number, data in enumerate(file, start=1):
        line, is_cut = read_answer(data), not data.endswith(b"\n")
        if line is None and not (is_cut and _may_begin(data)):
            raise UsageError(
                f"{path.name} has other text on its line {number} than answers.",
                hint="Name a new file, or the one of an earlier run.",
            )
        if line is None or not line.is_ok or line.custom_id in answered:
            is_whole = False
            continue
        is_whole = is_whole and not is_cut
        answered.add(line.custom_id)
        if copy is not None:
            copy.write(data.rstrip(b"\n") + b"\n")
    return answered, is_whole


def _may_begin(data: bytes) -> bool:
    """Whether a line of answers may begin so."""
    begin = b'{"id":"'
    return data[: len(begin)] == begin[: len(data)]
