"""Places and positions of a prompt that holds pictures."""

from __future__ import annotations

import numpy as np
import pytest

from worker.engine.request import GenerationParams, Medium, Prompt, Request, check_request
from worker.errors import RequestError

# Two tokens, three vectors in four positions, a token, two vectors that look at each other.
PLANES = np.array([[0, 0, 0], [0, 1, 2], [0, 1, 3], [0, 0, 0]], np.int32)
PROMPT = Prompt(
    (5, 6, -1, -2, -3, 7, -4, -5, 8),
    media=(
        Medium(2, np.zeros((3, 4), np.float32), 4, PLANES),
        Medium(6, np.ones((2, 4), np.float32), 2, is_causal=False),
    ),
)


def test_positions() -> None:
    """Those behind a medium follow its length, those in it its planes."""
    assert [PROMPT.position(place) for place in (0, 2, 5, 6, 8)] == [0, 2, 6, 7, 9]
    first, second = PROMPT.media
    assert first.positions_from(2, 3, 5).tolist() == (PLANES[:, 1:] + 2).tolist()
    assert second.positions_from(7, 6, 8).tolist() == [7, 8]


def test_runs() -> None:
    """Tokens and vectors share no step; a cut leaves whole media."""
    found = {begin: PROMPT.run(begin, 9) for begin in (0, 1, 2, 4, 5, 6, 8)}
    assert found == {0: 2, 1: 1, 2: 3, 4: 1, 5: 1, 6: 2, 8: 9}
    assert [PROMPT.whole(length) for length in range(10)] == [0, 1, 2, 2, 2, 5, 6, 6, 8, 9]
    assert PROMPT.medium_at(1) is PROMPT.medium_at(5) is None
    assert PROMPT.medium_at(4) is PROMPT.media[0]


@pytest.mark.parametrize(
    ("prompt", "scores", "why"),
    [
        (PROMPT, 1, "images have no scores"),
        (Prompt(PROMPT.tokens[:8], media=PROMPT.media), None, "must end with text"),
        (Prompt(PROMPT.tokens), None, "token ids outside"),
        (Prompt((5, 6, -1, -2, 7), media=PROMPT.media[:1]), None, "token ids outside"),
    ],
)
def test_refused(prompt: Prompt, scores: int | None, why: str) -> None:
    """Scores of the prompt, a picture at the end, vectors that are not there."""
    params = GenerationParams(prompt_param="prompt", prompt_logprobs=scores)
    with pytest.raises(RequestError, match=why):
        check_request(Request(id="x", prompt=prompt, params=params), 100, 50)
