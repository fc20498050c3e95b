"""Decisions about pictures, by both APIs."""

from __future__ import annotations

import base64
import math
from typing import Any

import pytest

from tests.support.models.projectors import png
from tests.support.programs.processes import Server

pytestmark = pytest.mark.mtmd

WHAT = "A lift is shown."


def predicate(server: Server, seed: int, *, in_state: bool) -> tuple[float, int]:
    """The probability of a statement by /v1/decisions, and the tokens of the request."""
    address = f"data:image/png;base64,{base64.b64encode(png(seed=seed)).decode()}"
    parts: list[dict[str, Any]] = [
        {"type": "input_image", "image_url": address},
        {"type": "input_text", "text": "Look at this."},
    ]
    asked: Any = [{"type": "input_text", "text": WHAT}]
    state: Any = "Nothing is told."
    if in_state:
        state = [{"role": "user", "content": parts}]
    else:
        asked = [*parts, *asked]
    body = {"input": state, "questions": [{"type": "predicate", "instructions": asked}]}
    answer = server.post(body, "/v1/decisions")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    return told["answers"][0]["probability"], told["usage"]["input_tokens"]


def noul(server: Server, seed: int) -> tuple[float, int]:
    """The same by /v1/systemone, with the picture in the state."""
    asset = {"type": "image", "data_base64": base64.b64encode(png(seed=seed)).decode()}
    body = {
        "state": "<p>Look at this.",
        "questions": {"shown": {"type": "noul", "instructions": WHAT}},
        "assets": {"<p>": asset},
    }
    answer = server.post(body, "/v1/systemone")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    return told["answers"]["shown"]["noul"], told["usage"]["input_tokens"]


def log_odds(probability: float) -> float:
    return math.log(probability / (1 - probability))


@pytest.mark.parametrize("in_state", [True, False])
def test_a_picture_changes_the_answer(seeing: Server, in_state: bool) -> None:
    """A picture in the state or in a question is read: another one has another probability, and the
    same one has the same again, from the cache too."""
    first, again, other = (predicate(seeing, seed, in_state=in_state) for seed in (1, 1, 2))
    assert log_odds(again[0]) == pytest.approx(log_odds(first[0]), abs=0.02)
    assert abs(log_odds(other[0]) - log_odds(first[0])) > 0.1
    assert first[1] == again[1] == other[1]


def test_both_apis_read_a_picture_alike(seeing: Server) -> None:
    """The same picture before the same words has one probability and one number of tokens."""
    ours, theirs = predicate(seeing, 3, in_state=True), noul(seeing, 3)
    assert log_odds(ours[0]) == pytest.approx(log_odds(theirs[0]), abs=0.02)
    assert ours[1] == theirs[1]
