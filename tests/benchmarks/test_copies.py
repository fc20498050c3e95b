"""What copies of text save: what is asked, and what the table says of it."""

from __future__ import annotations

import pytest

from benchmarks.copies import Taken, TakenPair, ask, lists, table
from benchmarks.edits import CopyAsk, calls, edits, prose
from benchmarks.embeddings import VectorServer
from tests.support.programs.processes import serving


def test_what_is_asked() -> None:
    """Four files of 25 lines are edited, edited otherwise, and asked for again; no other prompt
    comes twice."""
    asked = edits()
    assert [each.kind for each in asked] == ["edit"] * 4 + ["another"] * 4 + ["again"] * 4
    assert [each.prompt for each in asked[8:]] == [each.prompt for each in asked[:4]]
    prompts = [each.prompt for each in (*asked[:8], *calls(), *prose())]
    assert len({*prompts}) == len(prompts)
    for each in asked:
        code = each.prompt.split("```")[1]
        assert 24 <= len(code.splitlines()) <= 28
        assert each.prompt.endswith("\n".join(code.splitlines()[:4]))


@pytest.mark.parametrize(
    ("names", "most", "counts"),
    [(["edits"], 12, [1] * 12), (["edits", "prose"], 1, [1] * 4), (["prose8"], 1, [8])],
)
def test_so_many_of_each_kind(names: list[str], most: int, counts: list[int]) -> None:
    """One request at a time, but for prose of eight streams."""
    assert [len(several) for several in lists(names, most)] == counts


def test_the_table_compares_seconds_for_a_token() -> None:
    """A way that takes twice as long for twice the text is as fast; the sums count, not the mean of
    the requests, and of `auto` those that the way had too."""
    ours = [Taken(100, 60, 50, 1.0, 2.0), Taken(100, 0, 0, 3.0, 4.0)]
    theirs = [Taken(200, 80, 70, 2.0, 4.0), Taken(100, 0, 0, 6.0, 16.0)]
    both = [TakenPair(*pair) for pair in zip(theirs, ours, strict=True)]
    few = [TakenPair(Taken(100, 100, 0, 4.0, 2.0), ours[0])]
    alone = [TakenPair(each, each) for each in ours]
    lines = list(table({"edit": {"auto": alone, "other": both, "few": few}}))
    assert (
        lines[1].split() == "edit auto 200 150 60 50 4.00 6.00 1.000 (1.00 to 1.00) 1.000".split()
    )
    quotients = "1.333 (1.00 to 2.00) 2.222"
    assert lines[2].split() == f"edit other 300 230 80 70 8.00 20.00 {quotients}".split()
    assert [line.split()[:2] for line in lines[4:]] == [["all", "edits"]] * 3


def test_a_worker_counts_what_it_guessed() -> None:
    """The tokens that were asked for; the second time in fewer steps, because it is copied."""
    asked = [
        CopyAsk("edit", "Once upon a time there was", 40, {"temperature": 0, "ignore_eos": True})
    ]
    with serving("-np", "1") as worker:
        server = VectorServer(worker.url, worker.pid)
        first, again = ask(server, asked), ask(server, asked)
    assert first.tokens == again.tokens == 40
    assert again.steps < first.steps
    assert 0 < again.right <= again.guessed
