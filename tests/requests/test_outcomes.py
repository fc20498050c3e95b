"""Counting answers: labels stay few, whatever comes."""

from __future__ import annotations

from worker.requests.journal import OTHER, Outcomes


def test_codes_are_bounded() -> None:
    """After a hundred kinds of errors all new ones are one."""
    outcomes = Outcomes()
    for place in range(300):
        outcomes.note("GET /", 400, f"code-{place}")
    outcomes.note("GET /", 400, "code-0")
    assert len(outcomes.errors) == 101
    assert outcomes.errors["code-0", "400"] == 2
    assert outcomes.errors[OTHER, "400"] == 200
    assert sum(outcomes.errors.values()) == sum(outcomes.by_route.values()) == 301


def test_who_left_has_no_status() -> None:
    """A client that left before the answer is none of the errors."""
    outcomes = Outcomes()
    outcomes.note("POST /v1/completions", None, None)
    assert dict(outcomes.by_route) == {("POST /v1/completions", "none"): 1}
    assert not outcomes.errors
