"""Grammars are judged before native code: the bad are refused, the ordinary pass."""

from __future__ import annotations

import pytest

from tests.support.grammars import BAD, GOOD
from worker.errors import RequestError
from worker.grammar.gbnf import parse_gbnf


@pytest.mark.parametrize("name", BAD)
def test_bad_grammar(name: str) -> None:
    """What is wrong or too large is refused at once, under the client's name for it."""
    with pytest.raises(RequestError) as caught:
        parse_gbnf(BAD[name], "field")
    assert caught.value.param == "field"


@pytest.mark.parametrize("name", GOOD)
def test_good_grammar(name: str) -> None:
    """What users send passes."""
    parse_gbnf(GOOD[name], "grammar")
