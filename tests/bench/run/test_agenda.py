"""How far a run is."""

from __future__ import annotations

from worker.bench.run.runner import Agenda


def test_stages_count_by_what_they_take() -> None:
    """As shares of all expected seconds; before anything is expected it is none."""
    agenda = Agenda()
    assert agenda.position(None, "machine", 1.0).done == 0
    agenda.expect("a", "load", 1.0)
    agenda.expect("a", "speed", 3.0)
    assert agenda.position("a", "load", 0.0).done == 0
    agenda.finish("a", "load")
    assert agenda.position("a", "speed", 0.5).done == 2.5 / 4
    agenda.finish("a", "speed")
    assert agenda.position(None, "report", 0.0).done == 1


def test_what_need_not_run_counts_nothing() -> None:
    """A stage that an earlier run left, and those of a level that failed."""
    agenda = Agenda()
    for level in ("a", "b"):
        agenda.expect(level, "load", 1.0)
        agenda.expect(level, "speed", 1.0)
    agenda.drop("a", "load")
    assert agenda.position("a", "speed", 1.0).done == 1 / 3
    agenda.drop("b")
    agenda.finish("b", "load")
    assert agenda.position("a", "speed", 0.5).done == 0.5
