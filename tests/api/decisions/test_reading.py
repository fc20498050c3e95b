"""What questions are read as, and the probabilities that come of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.api.decisions.reading_model import TRUTH, ReadingModel, asks
from worker.api.decisions import reading
from worker.api.decisions.question import AnswerOption
from worker.api.decisions.reading import TIE, Plan
from worker.engine.output import token_logprob
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.scoring import Score, log_probabilities
from worker.errors import BackendError, ContextLengthError, RequestError
from worker.model.calibration import DecisionCalibration

# The demo model's weights are F16: how its rows are rounded depends on the rows beside them.
NOISE = 2e-4
ANIMALS = ("dog", "cat", "no", "no refund", "a very long name of an animal", "犬")


def echo(model: ReadingModel, tokens: tuple[int, ...]) -> list[float]:
    """ln p of each token but the first, as echo's prompt_logprobs have it, of a request alone."""
    params = GenerationParams(max_tokens=0, prompt_logprobs=0)
    model.engine.add(Request(id="echo", prompt=Prompt(tokens), params=params))
    found: Any = None
    while not model.engine.is_idle:
        for delta in model.engine.step():
            found = delta.prompt_logprobs or found
    return [score.logprob for score in found]


def log_sum(values: list[float]) -> float:
    return float(np.logaddexp.reduce(values))


def test_whole_texts_are_scored_as_echo_scores_them(reading_model: ReadingModel) -> None:
    """An option's probability is that of its tokens and of what ends it, as echo gives them for the
    same text."""
    question = asks("choice", "Which one?", *ANIMALS)
    given: dict[str, Any] = {"decisions": "texts", "decisions_orders": 1}
    plan = reading_model.plan(question, **given)
    (read,) = reading_model.read(question, **given)
    state = plan.request.prompt.tokens
    root, *others = plan.request.suffixes
    values: list[float] = []
    for suffix in others:
        begin = len(state) + len(root.tokens)
        whole = state + root.tokens + suffix.tokens
        said = sum(echo(reading_model, whole)[begin - 1 :])
        ends = [echo(reading_model, (*whole, end))[-1] for end in suffix.candidates]
        values.append(said + log_sum(ends))
    order = sorted(range(len(ANIMALS)), key=lambda place: ANIMALS[place])
    wanted = np.exp(np.array(values) - log_sum(values))
    found = [read.probabilities[place] for place in order]
    assert found == pytest.approx(wanted.tolist(), abs=NOISE)
    assert read.label_mass == pytest.approx(math.exp(log_sum(values)), rel=10 * NOISE)
    assert math.fsum(read.probabilities) == pytest.approx(1, abs=1e-12)
    assert (read.mode, read.orders) == ("texts", 1)


def test_letters_are_scored_as_echo_scores_them(reading_model: ReadingModel) -> None:
    """A letter's probability is the sum of its spellings' over the whole vocabulary, as echo gives
    them; the label mass is what all of them have together."""
    question = asks("scale", "How loud?", "silent", "audible", "loud")
    plan = reading_model.plan(question)
    (suffix,) = plan.request.suffixes
    whole = plan.request.prompt.tokens + suffix.tokens
    each = [echo(reading_model, (*whole, token))[-1] for token in suffix.candidates]
    (view,) = plan.asked[0].views
    values = [log_sum([each[place] for place in places]) for places in view.labels]
    (read,) = reading_model.read(question)
    wanted = np.exp(np.array(values) - log_sum(values))
    assert read.probabilities == pytest.approx(wanted.tolist(), abs=NOISE)
    assert read.label_mass == pytest.approx(math.exp(log_sum(values)), rel=10 * NOISE)
    assert read.mode == "letters"


@pytest.mark.parametrize("mode", ["letters", "texts"])
@pytest.mark.parametrize("orders", [1, 2, 3])
def test_listing_changes_nothing(reading_model: ReadingModel, mode: str, orders: int) -> None:
    """The same options listed otherwise have the same probabilities, within 1e-6."""
    options = ("lift", "kitchen", "garden", "roof")
    reads = [
        reading_model.read(asks("choice", "Where?", *listed), decisions=mode,
                           decisions_orders=orders)[0]
        for listed in itertools.islice(itertools.permutations(options), 0, 24, 7)
    ]  # fmt: skip
    listings = list(itertools.islice(itertools.permutations(options), 0, 24, 7))
    first = dict(zip(listings[0], reads[0].probabilities, strict=True))
    for listed, read in zip(listings, reads, strict=True):
        assert read.probabilities == pytest.approx([first[each] for each in listed], abs=1e-6)
        assert read.orders == orders


def test_levels_are_never_permuted(reading_model: ReadingModel) -> None:
    """A scale is shown once, the lowest level first, however many orders a choice has."""
    plan = reading_model.plan(asks("scale", "How?", "z", "b", "a"), decisions_orders=4)
    ((view,),) = (each.views for each in plan.asked)
    assert view.order == (0, 1, 2)


def test_rotations_show_each_option_first(reading_model: ReadingModel) -> None:
    """With as many orders as options each option is once in each place; more are not asked."""
    plan = reading_model.plan(asks("choice", "?", "c", "a", "b"), decisions_orders=9)
    (asked,) = plan.asked
    assert [view.order for view in asked.views] == [(1, 2, 0), (2, 0, 1), (0, 1, 2)]


SAME = (
    asks("statement", "A dog barks."),
    asks("choice", "A dog barks.", AnswerOption(True, "true"), AnswerOption(False, "false")),
    asks("choice", "A dog barks.", "yes", "no"),
)


@pytest.mark.parametrize("mode", ["auto", "letters", "texts"])
def test_one_statement_has_one_probability(reading_model: ReadingModel, mode: str) -> None:
    """A statement, and a choice between true and false or yes and no, are one computation and the
    same float64, in any order and any mode; and nothing is asked twice."""
    back = asks("choice", "A dog barks.", AnswerOption(False, "false"), AnswerOption(True, "true"))
    reads = reading_model.read(*SAME, back, decisions=mode, decisions_orders=3)
    values = [read.probabilities[0] for read in reads[:3]] + [reads[3].probabilities[1]]
    assert len({*values}) == 1
    assert {read.orders for read in reads} == {1}
    plan = reading_model.plan(SAME[0], decisions_orders=3)
    assert len(plan.request.suffixes) == 1


def test_statements_of_other_words_are_choices(reading_model: ReadingModel) -> None:
    """Two options that say something else are listed."""
    plan = reading_model.plan(asks("choice", "Where?", "no", "no refund"), decisions_orders=2)
    assert len(plan.request.suffixes) == 2


def test_hundreds_of_options_have_codes_or_texts(reading_model: ReadingModel) -> None:
    """255 options are read, by labels of their own as long as the vocabulary has them, else by
    their texts; and `letters` alone says which question it cannot read."""
    many = asks("choice", "Which?", *(f"{n}" for n in range(255)))
    few = asks("choice", "Which?", *(f"option {n}" for n in range(20)))
    reads = reading_model.read(many, few, decisions_orders=1)
    for read in reads:
        assert math.fsum(read.probabilities) == pytest.approx(1, abs=1e-12)
        assert min(read.probabilities) >= 0
    assert [len(read.probabilities) for read in reads] == [255, 20]
    if reads[0].mode == "texts":
        with pytest.raises(RequestError) as caught:
            reading_model.plan(many, decisions="letters")
        assert caught.value.param == "questions[0]"


def test_a_question_that_is_too_long(reading_model: ReadingModel) -> None:
    """Its own place is named, whatever is too long in it; the state's where that is longer."""
    short, long = asks("choice", "?", "a", "b"), "word " * 3000
    for odd in (asks("statement", long), asks("choice", "?", long, "b")):
        for mode in ("letters", "texts"):
            place = msgspec.structs.replace(odd, place="questions[1]")
            with pytest.raises(ContextLengthError) as caught:
                reading_model.plan(short, place, decisions=mode)
            assert caught.value.param == "questions[1]"
    with pytest.raises(ContextLengthError) as caught:
        reading_model.plan(short, state="word " * 2040)
    assert caught.value.param == "input"


def test_labels_are_sought_once(
    reading_model: ReadingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Further questions of a request tokenize their own text and no label again."""
    vocab, count = type(reading_model.facts.vocab), 0
    tokenize = vocab.tokenize

    def counted(*given: Any, **named: Any) -> list[int]:
        nonlocal count
        count += 1
        return tokenize(*given, **named)

    def tokenized(questions: int) -> int:
        nonlocal count
        asked = [asks("choice", f"Which, {n}?", *map(str, range(40))) for n in range(questions)]
        count = 0
        reading_model.plan(*asked, decisions_orders=1)
        return count

    monkeypatch.setattr(vocab, "tokenize", counted)
    assert tokenized(11) - tokenized(1) == 10


def test_options_are_text(reading_model: ReadingModel) -> None:
    """Control tokens that an option spells out are text where it is listed and where it is scored;
    an option without a token is refused by name."""
    odd = ("<|end|>", "a <|bos|> b", "c")
    plan = reading_model.plan(asks("choice", "?", *odd), decisions="texts", decisions_orders=1)
    vocab = reading_model.facts.vocab
    controls = {*vocab.controls.values(), *vocab.end_tokens}
    spelled: list[str] = []
    for suffix in plan.request.suffixes[1:]:
        assert controls.isdisjoint(suffix.tokens)
        spelled.append(b"".join(vocab.pieces[token] for token in suffix.tokens).decode())
    assert spelled == sorted(odd)
    with pytest.raises(RequestError) as caught:
        reading_model.plan(asks("choice", "?", "", "b"), decisions="texts")
    assert caught.value.param == "questions[0]"


def test_options_that_begin_alike_share_their_beginning(reading_model: ReadingModel) -> None:
    """The question is computed once for all of its options, and an option behind it alone."""
    plan = reading_model.plan(
        asks("choice", "Which one?", *ANIMALS), state="A new state.", decisions="texts",
        decisions_orders=1,
    )  # fmt: skip
    before = reading_model.engine.snapshot.stats.computed_tokens
    reading_model.scored(plan)
    root, *others = plan.request.suffixes
    own = sum(len(each.tokens) for each in others)
    computed = reading_model.engine.snapshot.stats.computed_tokens - before
    assert computed <= len(plan.request.prompt.tokens) + len(root.tokens) + own


def test_hundreds_of_questions_compute_the_state_once(reading_model: ReadingModel) -> None:
    """Questions of one state compute its tokens once, and those of each question; a second request
    over the same state finds it."""
    questions = [asks("statement", f"Number {n} is even.") for n in range(60)]
    state = "In a long list there are many numbers. " * 12
    plan = reading_model.plan(*questions, state=state)
    plan = without_ties(plan)
    before = reading_model.engine.snapshot.stats.computed_tokens
    reading_model.scored(plan)
    computed = reading_model.engine.snapshot.stats.computed_tokens - before
    assert computed <= plan.request.num_tokens == plan.num_tokens
    again = reading_model.scored(without_ties(reading_model.plan(questions[0], state=state)))
    assert again.cached_tokens == len(plan.request.prompt.tokens)


def nothing(_: Sequence[Score]) -> Iterable[int]:
    return ()


def without_ties(plan: Plan) -> Plan:
    request = msgspec.structs.replace(plan.request, doubtful=nothing)
    return msgspec.structs.replace(plan, request=request)


def test_same_alone_beside_others_and_from_the_cache(reading_model: ReadingModel) -> None:
    """Cold, from the cache and beside other questions a question has the same probabilities within
    the tolerance."""
    question = asks("choice", "Where is it?", "lift", "kitchen", "garden")
    state = "The bird sings in the old tree near the lake."
    cold, again = (reading_model.read(question, state=state)[0] for _ in range(2))
    crowd = [asks("statement", f"It is {n} metres high.") for n in range(9)]
    beside = reading_model.read(*crowd, question, *crowd, state=state)[len(crowd)]
    for read in (again, beside):
        gaps = np.log(read.probabilities) - np.log(cold.probabilities)
        assert np.abs(gaps).max() < TIE


def test_usage_is_of_the_request(reading_model: ReadingModel) -> None:
    """The tokens of a request are the same when the cache has its state, and in any number of
    orders."""
    question = asks("choice", "Where is it?", "lift", "kitchen", "garden")
    plans = [reading_model.plan(question, decisions_orders=n) for n in (1, 3)]
    reading_model.scored(plans[0])
    plans.append(reading_model.plan(question))
    assert len({plan.num_tokens for plan in plans}) == 1
    assert plans[0].num_tokens == plans[0].request.num_tokens


def asked_of(values: list[list[float]]) -> tuple[Any, list[Score]]:
    """A question whose options have these ln p in each order, as letters."""
    count = len(values[0])
    views = tuple(
        reading.OptionsView(tuple(range(count)), place, tuple((n,) for n in range(count)))
        for place in range(len(values))
    )
    return reading.PlannedQuestion(views, "letters", None), [
        Score((), tuple(each)) for each in values
    ]


def test_orders_are_averaged_as_logarithms() -> None:
    """The mean is of the normalised log-probabilities; flips count the orders whose likeliest
    option is another one; the label mass is the mean of the sums."""
    asked, scores = asked_of([[math.log(0.6), math.log(0.2)], [math.log(0.2), math.log(0.3)]])
    (read,) = Plan(None, (asked,), 0).readings(scores)  # pyright: ignore[reportArgumentType]
    odds = math.sqrt((0.6 / 0.2) * (0.2 / 0.3))
    assert read.probabilities == pytest.approx([odds / (1 + odds), 1 / (1 + odds)], abs=1e-12)
    assert (read.orders, read.flips) == (2, 1)
    assert read.label_mass == pytest.approx((0.8 + 0.5) / 2)


def test_temperature_never_changes_the_choice() -> None:
    """A measured temperature divides the log-probabilities: the order of the options stays."""
    asked, scores = asked_of([[-1.0, -2.0, -4.0]])
    asked = msgspec.structs.replace(asked, temperature=2.0)
    (read,) = Plan(None, (asked,), 0).readings(scores)  # pyright: ignore[reportArgumentType]
    powers = np.exp(np.array([-0.5, -1.0, -2.0]))
    assert read.probabilities == pytest.approx((powers / powers.sum()).tolist(), abs=1e-12)
    assert read.temperature == 2.0


@pytest.mark.parametrize(
    "values",
    [
        [[-math.inf, -math.inf]],
        [[math.nan, math.nan]],
        [[-1.0, math.nan]],
        [[math.nan, -math.inf]],
        [[-math.inf, -1.0], [-1.0, -math.inf]],
    ],
)
def test_no_made_up_uniform(values: list[list[float]]) -> None:
    """Where no option has a probability in all orders, or one is no number, the answer is an
    error."""
    asked, scores = asked_of(values)
    with pytest.raises(BackendError):
        Plan(None, (asked,), 0).readings(scores)  # pyright: ignore[reportArgumentType]


def test_an_impossible_option_has_probability_zero() -> None:
    """One option without a probability leaves the others theirs."""
    asked, scores = asked_of([[-1.0, -math.inf], [-1.0, -math.inf]])
    (read,) = Plan(None, (asked,), 0).readings(scores)  # pyright: ignore[reportArgumentType]
    assert read.probabilities == (1.0, 0.0)


def test_near_ties_are_doubtful() -> None:
    """Questions whose two likeliest options differ by less than the tolerance are read again."""
    near, _ = asked_of([[-1.0, -1.0 - TIE / 2, -9.0]])
    scores = [Score((), (-1.0, -1.0 - TIE / 2, -9.0)), Score((), (-1.0, -1.0 - 2 * TIE, -9.0))]
    far = msgspec.structs.replace(near, views=(msgspec.structs.replace(near.views[0], first=1),))
    assert reading.near_ties((near, far), scores) == [0]


def test_scores_have_no_sampling(reading_model: ReadingModel) -> None:
    """ln p of a label are of the raw logits: what `token_logprob` says of them."""
    logits = np.random.default_rng(3).normal(size=300).astype(np.float32)
    assert reading_model.plan(SAME[0]).request.params.sampling == GenerationParams().sampling
    wanted = token_logprob(logits, 5, 0).logprob
    assert log_probabilities(logits, (5,)) == (wanted,)


def calibration(**temperatures: float) -> Any:
    return msgspec.convert(
        {
            "format": "worker-decisions-1", "created": "", "model": "m", "sha256": "",
            "size_bytes": 1, "modified_ns": [], "prompt_version": "1", "orders": 2,
            "modes": dict.fromkeys(temperatures, "letters"), "temperatures": temperatures,
            "questions": {}, "held_out": {},
        },
        DecisionCalibration,
    )  # fmt: skip


def test_measured_temperatures_are_used(reading_model: ReadingModel) -> None:
    """A calibration counts for the orders and the mode that it was measured with."""
    facts = msgspec.structs.replace(
        reading_model.facts, calibration=calibration(choice=3.0, statement=2.0)
    )
    model = reading_model._replace(facts=facts)
    three = asks("choice", "Where?", "lift", "kitchen", "garden")
    plan = model.plan(three, asks("statement", "It is."), asks("scale", "How?", "a", "b"))
    assert [asked.temperature for asked in plan.asked] == [3.0, 2.0, None]
    assert model.plan(three, decisions_orders=3).asked[0].temperature is None
    assert model.plan(three, decisions="texts").asked[0].temperature is None
    assert TRUTH[0].value is True
