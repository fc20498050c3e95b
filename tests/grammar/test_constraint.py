"""Regular expressions are judged before native code."""

from __future__ import annotations

import pytest

from worker.errors import RequestError
from worker.grammar.constraint import choice_constraint, regex_constraint
from worker.limits import OPTIONAL


@pytest.mark.parametrize("part", ["a?", "a*", "a{0,1}", "(a|)", "(|a)", "(a||b)"])
def test_parts_that_may_be_missing(part: str) -> None:
    """Each way to write them counts: so many pass, one more does not."""
    regex_constraint(part * OPTIONAL.most, "field")
    with pytest.raises(RequestError, match=r"^field has more than 5000 parts") as caught:
        regex_constraint(part * (OPTIONAL.most + 1), "field")
    assert caught.value.param == "field"


def test_texts_of_a_choice_have_no_such_parts() -> None:
    """Their question marks are characters."""
    choice_constraint([f"{number}?" for number in range(6000)], "field")
