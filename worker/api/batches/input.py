"""The lines of an uploaded file, checked and put into the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from worker.batches.line import BatchLine, LineProblem, LineReader
from worker.database.batches import LinePlace

# Lines that are put into order together, and bytes of their beginnings that are compared.
_WINDOW, _COMPARED = 4_096, 8_192
_MOST_PROBLEMS = 100


class BatchInput(msgspec.Struct):
    """What a file holds. `problems`: none, or no line is asked."""

    num_lines: int = 0
    problems: list[LineProblem] = []

    def read(
        self, opened: Callable[[], BinaryIO], endpoint: str, most_lines: int, most_bytes: int
    ) -> Iterator[list[LinePlace]]:
        """Its lines, some at a time, with shared beginnings beside each other. Blocks.

        opened: opens the file, when the first ones are asked for
        most_bytes: of a line
        """
        reader, window = LineReader(endpoint), list[tuple[bytes, LinePlace]]()
        with opened() as data:
            at = 0
            while text := data.readline(most_bytes + 1):
                found = reader.read(text)
                start, at = at, at + len(text)
                if len(text) > most_bytes:
                    told = f"This line has more than {most_bytes >> 20} MiB; --max-body sets that."
                    self.problems.append(LineProblem("line_too_large", told, reader.number))
                    break
                if isinstance(found, LineProblem):
                    self.problems.append(found)
                    if len(self.problems) >= _MOST_PROBLEMS:
                        break
                elif isinstance(found, BatchLine):
                    place = LinePlace(found.number, 0, found.custom_id, start, len(text))
                    window.append((found.beginning[:_COMPARED], place))
                    if self.num_lines + len(window) > most_lines:
                        told = f"The file has more than the {most_lines:,} lines of --batch-lines."
                        self.problems.append(LineProblem("too_many_lines", told, 0))
                        break
                    if len(window) == _WINDOW:
                        yield self._in_order(window)
        if window:
            yield self._in_order(window)
        if not self.num_lines and not self.problems:
            self.problems.append(LineProblem("empty_file", "The file has no line.", 0))

    def _in_order(self, window: list[tuple[bytes, LinePlace]]) -> list[LinePlace]:
        window.sort(key=lambda each: each[0])
        first = self.num_lines + 1
        self.num_lines += len(window)
        ordered = [line._replace(place=first + n) for n, (_, line) in enumerate(window)]
        window.clear()
        return ordered
