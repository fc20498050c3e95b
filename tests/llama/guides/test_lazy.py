"""Constraints that start behind a trigger: free text before, and between them where they repeat."""

from __future__ import annotations

import re

import numpy as np

from tests.support.guided import Writer
from worker.engine.request import GenerationParams, Prompt, Request, SpanLimit
from worker.engine.sampling import SamplingParams
from worker.grammar.constraint import Constraint, schema_constraint
from worker.llama.guides.matcher import Watch
from worker.llama.sampling.sampler import Sampler

CALL = 'start: "<" /[a-c]{1,3}/ ">"'
# The trigger is often written; a token may hold its end and what follows.
LIKED = {b"o": 5.0, b"t": 5.0, b"oe": 4.0, b"to": 3.0}


def test_it_holds_behind_the_trigger_only(writer: Writer) -> None:
    """Whatever tokens the trigger is written with, and whatever hangs on to them."""
    constraint = Constraint(
        kind="lark", text=CALL, starts_after=("to",), required=False, repeats=True
    )
    calls = 0
    for seed in range(12):
        text = writer.write(constraint, seed=seed, most=120, liked=LIKED, ignore_eos=True)[0]
        parts = text.split(b"to")
        assert all(re.match(rb"<[a-c]{1,3}>", part) for part in parts[1:-1])
        calls += len(parts) - 1
    assert calls > 20


def test_it_may_be_complete_in_the_token_of_its_trigger(writer: Writer) -> None:
    """Then free text follows, and it may start again."""
    constraint = Constraint(
        kind="regex", text="e", starts_after=("o",), required=False, repeats=True
    )
    liked = {b"oe": 6.0, b"o": 2.0}
    text = writer.write(constraint, most=200, liked=liked, ignore_eos=True)[0]
    assert text.count(b"oe") > 20
    assert all(part.startswith(b"e") for part in text.split(b"o")[1:-1])


def test_the_end_waits_for_what_is_required(writer: Writer) -> None:
    """No end before the constraint is fulfilled, and nothing but the end behind it."""
    liked = {b"": 3.0, b"o": 3.0, b"t": 3.0}  # end tokens are liked too
    for kind, text in (("lark", CALL), ("regex", "<[a-c]{1,3}>")):
        constraint = Constraint(kind=kind, text=text, starts_after=("to", "ot"))  # pyright: ignore
        for seed in range(8):
            written, ended = writer.write(constraint, seed=seed, liked=liked)
            assert ended
            assert re.search(rb"(to|ot)<[a-c]{1,3}>$", written)


def test_what_is_not_required_may_be_missing(writer: Writer) -> None:
    """The end may come in free text."""
    constraint = Constraint(kind="regex", text="x", starts_after=("never",), required=False)
    assert writer.write(constraint, logit_bias=((2, 100.0),)) == (b"", True)


def test_a_token_may_be_the_trigger(writer: Writer) -> None:
    """A control token, which no client sees."""
    constraint = Constraint(kind="regex", text="[ab]{3}", starts_after_tokens=(1,))
    text, ended = writer.write(constraint, logit_bias=((1, 8.0),))
    assert ended
    assert re.search(rb"[ab]{3}$", text)


def test_json_behind_thoughts(writer: Writer) -> None:
    """White space may come before it."""
    constraint = schema_constraint({"enum": [1]}, "field", starts_after=("to",))
    texts = {writer.write(constraint, seed=seed, liked=LIKED)[0] for seed in range(6)}
    assert all(re.search(rb"to[ \n]{0,4}1$", text) for text in texts)


def test_what_must_come_behind_a_thought(writer: Writer) -> None:
    """Nothing while the thought lasts, or its end is written; then all of it."""
    vocab = writer.vocab
    limit = SpanLimit(
        count=3, opens=("<t>",), ends=("</t>",), forced=tuple(vocab.within(b"</t>")), is_open=True
    )
    held = Constraint(kind="regex", text="departure_date", starts_after=("</t>",))
    sampling = SamplingParams(temperature=0, constraint=held)
    params = GenerationParams(max_tokens=99, limit=limit, sampling=sampling)
    request = Request(id="one", prompt=Prompt((5,)), params=params)
    sampler = Sampler(request, vocab, writer.workspace, writer.guides)
    row = np.array([piece == b"a" for piece in vocab.pieces], np.float32)
    coming: list[int] = []
    for _ in range(3 + len(limit.forced)):
        assert not coming
        sampler.sample(row)
        coming = sampler.ahead()
    assert coming[:-1] == vocab.within(b"departure_date")
    assert coming[-1] in vocab.end_tokens
    sampler.free()


def test_a_trigger_over_many_tokens() -> None:
    """It is found at every border, and what follows it is told apart."""
    watch = Watch(Constraint(kind="regex", text="x", starts_after=("<call>", "<c>")))
    for piece in (b"a <", b"ca", b"ll"):
        assert watch.look(5, piece) is None
        watch.add(piece)
    assert watch.look(5, b">{") == b"{"
    assert watch.look(5, b"<") is None
    watch.clear()
    assert watch.look(5, b">") is None
    assert watch.look(5, b"<c><call>") == b"<call>"
    assert Watch(Constraint(kind="regex", text="x")).look(5, b"abc") is None
