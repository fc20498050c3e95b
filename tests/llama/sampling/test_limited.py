"""A part that is too long is ended, and not in the midst of a character."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from worker.engine.request import GenerationParams, SpanLimit
from worker.llama.sampling.sampler import LimitedChoice

PIECES = (b"</t>", b"a", b"\xf0", b"\x9f", b"\x98", b"\x80", b"b")
END, BEFORE, AFTER = 0, 1, 6
SMILE = (2, 3, 4, 5)


class Planned:
    """Chooses what was planned, or what alone may be."""

    def __init__(self, plan: list[int]) -> None:
        self._plan = plan

    def choose(self, row: np.ndarray) -> int:
        allowed = np.flatnonzero(np.isfinite(row))
        return int(allowed[0]) if len(allowed) == 1 else self._plan.pop(0)


def chosen(plan: list[int], count: int) -> list[int]:
    """Five tokens, where a thought may have `count`."""
    limit = SpanLimit(count=count, opens=("<t>",), ends=("</t>",), forced=(END,), is_open=True)
    params = GenerationParams(max_tokens=9, limit=limit)
    workspace: Any = SimpleNamespace(copy_row=np.copy)
    vocab: Any = SimpleNamespace(pieces=PIECES)
    planned: Any = Planned(plan)
    choice = LimitedChoice(planned, params, vocab, workspace)
    return [choice.choose(np.zeros(len(PIECES), np.float32)) for _ in range(6)]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [BEFORE, END]),
        (2, [BEFORE, *SMILE, END]),
        (4, [BEFORE, *SMILE, END]),
        (5, [BEFORE, *SMILE, END]),
    ],
)
def test_a_character_is_ended_first(count: int, expected: list[int]) -> None:
    """Four tokens, a byte each; a limit before and behind them counts as it is."""
    plan = [BEFORE, *SMILE, AFTER, AFTER, AFTER, AFTER]
    assert chosen(plan, count)[: len(expected)] == expected


def test_no_text_at_all() -> None:
    """Beginnings of characters, one after the other: no more than three are waited for."""
    assert chosen([2, 2, 2, 2, 2, 2, 2], 1) == [2, 2, 2, 2, END, 2]
