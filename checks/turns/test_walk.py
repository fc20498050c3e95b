"""Turns are counted as a reader takes them."""

from __future__ import annotations

from checks.turns.run import Call, Function
from checks.turns.walk import climbs_of, walk_of


def test_a_call_is_read_once() -> None:
    """a calls b twice and c once: to b and back, to c and back, and no second time to b."""
    ours, b, c = (Function(f"{name}.py", name, 1) for name in "abc")
    own = Call(Function("a.py", "own", 9), [Call(c)])
    call = Call(ours, [Call(b), Call(b), own])
    walk = walk_of(call)
    assert (walk.stays, walk.returns, walk.files) == (5, 2, 3)
    assert climbs_of(call) == 3
