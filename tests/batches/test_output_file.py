"""The file of a batch's answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.batches.line import AnsweredLine, with_failure, with_response, write_line
from worker.batches.output_file import output_file
from worker.errors import UsageError


def answer(name: str) -> AnsweredLine:
    """One with 200."""
    return with_response(name, 200, "", b"{}")


def test_what_is_answered_stays(tmp_path: Path) -> None:
    """An earlier run's answers stay byte by byte; failures, a second answer and a line that was cut
    anywhere are dropped, and asked again."""
    first, last = write_line(answer("a")), write_line(answer("c"))
    failed = write_line(with_failure("b", "x", "No.")) + write_line(
        with_response("d", 400, "", b"{}")
    )
    path = tmp_path / "out"
    for end in (*range(1, 9), 60, len(last) - 2):
        path.write_bytes(first + failed + first + last[:end])
        with output_file(str(path)) as output:
            assert output.answered == {"a"}
        assert path.read_bytes() == first
    path.write_bytes(first + last[:-1])  # only its end is missing
    with output_file(str(path)) as output:
        assert output.answered == {"a", "c"}
        output.append(answer("e"))
    assert path.read_bytes().startswith(first + last)
    assert path.read_bytes().count(b"\n") == 3


def test_lines_are_written_in_groups(tmp_path: Path) -> None:
    """A whole group is in the file before the next begins; the end writes the rest."""
    path = tmp_path / "out"
    with output_file(str(path)) as output:
        for number in range(70):
            output.append(answer(str(number)))
        assert path.read_bytes().count(b"\n") >= 64
    assert path.read_bytes().count(b"\n") == 70


def test_another_file_is_left_alone(tmp_path: Path) -> None:
    """What holds other text is refused, and so is a file that is being written."""
    path = tmp_path / "out"
    for text in ("a story\n", "a story", '{"custom_id": "x"}\n'):
        path.write_text(text)
        with pytest.raises(UsageError, match="other text on its line 1"), output_file(str(path)):
            pass
        assert path.read_text() == text
    path.unlink()
    with (
        output_file(str(path)),
        pytest.raises(UsageError, match="Another process"),
        output_file(str(path)),
    ):
        pass
