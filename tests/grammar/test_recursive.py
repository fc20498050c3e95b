"""GBNF in Lark's syntax: what is turned round, and what is not written at all.

That the texts are the same is shown in tests/llama/guides/test_recursive.py.
"""

from __future__ import annotations

from worker.grammar.converted import lark_of
from worker.grammar.gbnf import Grammar


def test_a_rule_at_its_own_end() -> None:
    """It becomes one at its own beginning."""
    assert lark_of(Grammar("root ::= [a] root | [b]", "grammar")) == "\n".join([
        "start: n0", "n0: p0_0 n2", 'p0_0: "" | p0_0 n1', "n2: /[\\x{62}-\\x{62}]/",
        "n1: /[\\x{61}-\\x{61}]/",
    ])  # fmt: skip


def test_a_rule_in_the_midst_of_itself() -> None:
    """It stays what it is; what nobody uses is left out."""
    found = lark_of(Grammar("root ::= [a] root [b] | [a]\nno ::= [c]", "grammar"))
    assert found is not None
    assert found.splitlines()[:2] == ["start: n0", "n0: n1 n0 n2 | n1"]
    assert "63" not in found


def test_a_large_ring_stays_as_it_is() -> None:
    """Turned round, its rules would be longer than native code takes."""
    rules = "\n".join(f"r{i} ::= [a-z] r{(i + 1) % 300} | [b]" for i in range(300))
    text = f"root ::= {' '.join(f'r{i}' for i in range(300))}\n{rules}"
    made = lark_of(Grammar(text, "grammar"))
    assert "p1_" not in made
    assert made.count("\n") < 1000
