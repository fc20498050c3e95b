"""Banned phrases, on a backend whose next token is a fixed function of the text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driving import KINDS, engine_over, request, run, tokens_of
from tests.support.fakes import END, FakeBackend, next_token
from worker.engine.banned import MOST_RETURNS, Phrases
from worker.engine.sampling import SamplingParams

PROMPTS = {f"r{i}": [1 + (i * 7 + j) % 40 for j in range(3 + i)] for i in range(12)}
# The fake's tokens are single letters, so that these are frequent.
PHRASES = ("A", "be", "h", "ZZ", "k", "q", "uv")


def expected(prompt: list[int], count: int, backend: FakeBackend) -> tuple[list[int], int]:
    """What must come, token by token with all of the text searched each time; how often tokens
    were taken back."""
    tokens: list[int] = []
    bans: dict[int, list[int]] = {}
    lowered = [phrase.lower() for phrase in PHRASES]
    returns = 0
    while len(tokens) < count:
        token = next_token(prompt + tokens, backend.vocab_size, backend.memory)
        place = len(tokens)
        while token in bans.get(place, ()):
            token = (token + 1) % backend.vocab_size
        tokens.append(token)
        if token == END:
            break
        text = "".join(backend.pieces[each].decode() for each in tokens)
        begin = min((text.find(p) for p in lowered if p in text), default=-1)
        if begin >= 0 and returns < MOST_RETURNS:
            returns += 1
            bans = {at: its for at, its in bans.items() if at <= begin}
            bans.setdefault(begin, []).append(tokens[begin])
            del tokens[begin:]
    return tokens, returns


@pytest.mark.parametrize("more", [*KINDS, {"streams": True}, {"num_slots": 2}], ids=str)
def test_no_phrase_comes(more: dict[str, Any]) -> None:
    """Each of several requests gets the tokens of the slow way, whatever the cache can do; what
    ended leaves no slot, sampler or cell behind."""
    options: dict[str, Any] = {"num_slots": 5, **more}
    backend = FakeBackend(num_cells=2048, **options)
    engine = engine_over(backend)
    sampling = SamplingParams(banned_strings=PHRASES)
    for name, prompt in PROMPTS.items():
        engine.add(request(name, prompt, max_tokens=60, sampling=sampling, logprobs=1))
    deltas = run(engine)
    taken_back = 0
    for name, prompt in PROMPTS.items():
        tokens, returns = expected(prompt, 60, backend)
        taken_back += returns
        assert tokens_of(deltas[name]) == tokens, name
        text = "".join(delta.text for delta in deltas[name])
        assert text == "".join(backend.pieces[token].decode() for token in tokens)
        told = [score.token for delta in deltas[name] for score in delta.logprobs]
        assert told == tokens
        assert deltas[name][-1].sampled_tokens == len(tokens)
        if returns < MOST_RETURNS:
            assert not any(phrase.lower() in text for phrase in PHRASES)
    assert taken_back > 30
    assert backend.live_samplers == 0
    engine.scheduler.check_integrity()


def test_what_may_become_a_phrase_is_held_back() -> None:
    """Text is told once it cannot be a phrase's beginning any more."""
    phrases = Phrases(["Good Day", "dayS"])
    assert phrases.begin("a good d") == 2
    assert phrases.begin("a good da") == 2
    assert phrases.begin("a goods") == len("a goods")
    assert phrases.begin("monday") == 3
    assert phrases.find("say good day") == 4
    assert phrases.find("sundays") == 3
    assert phrases.find("sunday") is None


class CuttingBackend(FakeBackend):
    """All answers have a part that can be cut."""

    num_cuts = 0

    def cut(self, sampler: Any) -> bool:
        self.num_cuts += 1
        return True


def test_what_was_cut_stays_so() -> None:
    """A sampler that is made anew behind a phrase ends the part that was to end."""
    backend = CuttingBackend(num_cells=2048, num_slots=1)
    engine = engine_over(backend)
    sampling = SamplingParams(banned_strings=PHRASES)
    name = next(each for each, prompt in PROMPTS.items() if expected(prompt, 60, backend)[1] > 2)
    engine.add(request(name, PROMPTS[name], max_tokens=60, sampling=sampling))
    engine.step()
    assert engine.cut(name)
    run(engine)
    assert backend.num_cuts > 1
    assert not engine.cut(name)
