"""The comparison with peers, as far as it needs none of them."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from benchmarks.peers.answers import Work, joint_rate
from benchmarks.peers.cases.case import Sample
from benchmarks.peers.cases.catalog import CASES
from benchmarks.peers.cases.conversations import (
    ANSWER,
    ANSWER_TOKEN,
    CONVERSATIONS,
    OPENING,
    QUESTION,
    TURNS,
    conversations,
    restarted_conversations,
)
from benchmarks.peers.cases.leftovers import ENDED, PROMPT, TRIES, used_server
from benchmarks.peers.goals import GOALS, NATIVE, US, Goal, Results
from benchmarks.peers.processes import PeerError
from benchmarks.peers.prompts import Prompts
from benchmarks.peers.report import as_json, case_table
from benchmarks.peers.servers import PEERS, Setup, worker_command, worker_options
from benchmarks.shapes import SHAPES
from worker.bench.measure.client import StreamedAnswer

READ_S, WRITE_S = 0.001, 0.01  # of one token


class ReadingPeer:
    """A peer with a clock of its own: it reads each prompt whole and writes one token a time."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.starts = 0
        self.prompts: list[str | list[int]] = []

    @contextlib.contextmanager
    def start(self) -> Generator[ReadingPeer]:
        """Ready at once; a start takes a minute."""
        self.starts += 1
        self.clock += 60.0
        yield self

    def answer_all(self, work: Work) -> list[StreamedAnswer]:
        """One request after another."""
        answers: list[StreamedAnswer] = []
        for asked in work.requests:
            self.prompts.append(asked.prompt)
            words = asked.prompt.split() if isinstance(asked.prompt, str) else asked.prompt
            first = self.clock + READ_S * len(words)
            times = [first + WRITE_S * number for number in range(asked.max_tokens)]
            answers.append(
                StreamedAnswer(
                    sent=self.clock, ended=times[-1], times=times, tokens=asked.max_tokens,
                    prompt_tokens=len(words), is_whole=True,
                )
            )  # fmt: skip
            self.clock = times[-1]
        return answers


class FailingPeer(ReadingPeer):
    """Every answer is an error."""

    def answer_all(self, work: Work) -> list[StreamedAnswer]:
        """Errors."""
        return [StreamedAnswer(sent=0.0, error="HTTP 500") for _ in work.requests]


class CutPeer(ReadingPeer):
    """No answer comes to its end."""

    def answer_all(self, work: Work) -> list[StreamedAnswer]:
        """Cut off before the last token."""
        answers = super().answer_all(work)
        for answer in answers:
            answer.is_whole = False
        return answers


def longest_prompt() -> int:
    """Tokens of a conversation's last prompt."""
    return OPENING + (TURNS - 1) * (ANSWER + QUESTION)


def results_of(case: str, ours: Sample, theirs: Sample) -> Results:
    """One round of us and the native server."""
    return {case: {US: [ours], NATIVE: [theirs]}}


def test_each_prompt_continues_the_one_before() -> None:
    """A turn's prompt is the prompt before it, the forced answer and a new question."""
    peer = ReadingPeer()
    conversations(peer.start, Prompts("conversations", 0))
    turns = [
        peer.prompts[n : n + CONVERSATIONS] for n in range(0, len(peer.prompts), CONVERSATIONS)
    ]
    assert len(turns) == TURNS
    for before, after in itertools.pairwise(turns):
        for old, new in zip(before, after, strict=True):
            assert isinstance(old, list)
            assert new[: len(old)] == old
            assert new[len(old) : len(old) + ANSWER] == [ANSWER_TOKEN] * ANSWER
            assert len(new) == len(old) + ANSWER + QUESTION


def test_all_peers_get_the_same_prompts() -> None:
    """What is asked depends on the case and the round alone."""
    peers = [ReadingPeer(), ReadingPeer()]
    for peer in peers:
        conversations(peer.start, Prompts("conversations", 1))
    assert peers[0].prompts == peers[1].prompts


def test_conversations_fit_one_by_one_and_not_together() -> None:
    """A slot holds any conversation; the small context cannot hold all, the roomy one can."""
    longest = longest_prompt() + ANSWER
    small, roomy = CASES["conversations"], CASES["conversations-roomy"]
    assert longest <= small.cells // small.slots
    assert CONVERSATIONS * longest_prompt() > small.cells
    assert CONVERSATIONS * longest <= roomy.cells
    assert roomy.slots >= CONVERSATIONS


def test_a_restart_is_not_in_the_seconds() -> None:
    """A new server for each turn, and the same seconds as with one server."""
    one, many = ReadingPeer(), ReadingPeer()
    whole = conversations(one.start, Prompts("c", 0))
    restarted = restarted_conversations(many.start, Prompts("c", 0))
    assert (one.starts, many.starts) == (1, TURNS)
    assert restarted["value"] == pytest.approx(whole["value"])
    assert restarted["worst_ttft_s"] == pytest.approx(READ_S * longest_prompt())


def test_a_server_that_keeps_its_speed_keeps_all_of_it() -> None:
    """The peer that does not mind what has ended scores 1, after as many prompts as are said."""
    peer = ReadingPeer()
    sample = used_server(peer.start, Prompts("used", 0))
    assert sample["value"] == pytest.approx(1)
    assert sample["writing_kept"] == pytest.approx(1)
    assert sample["used_ttft_s"] == pytest.approx(READ_S * PROMPT)
    assert len(peer.prompts) == 2 * TRIES + len(ENDED)


def test_a_failed_request_is_no_measurement() -> None:
    """An error of a peer is PeerError and no sample."""
    with pytest.raises(PeerError, match="HTTP 500"):
        conversations(FailingPeer().start, Prompts("c", 0))


def test_an_unfinished_turn_is_no_measurement() -> None:
    """A peer that was cut off did not do the work that the seconds are of."""
    with pytest.raises(PeerError, match="did not finish 8"):
        conversations(CutPeer().start, Prompts("c", 0))


def test_the_joint_rate_counts_tokens() -> None:
    """Two streams of ten tokens in five events each count twenty tokens, not ten."""
    answers = [
        StreamedAnswer(sent=0, ended=4, times=[0.0, 1.0, 2.0, 3.0, 4.0], tokens=tokens)
        for tokens in (10, 10)
    ]
    assert joint_rate(answers) == pytest.approx(4)  # 2 tokens an event, an event a second, two


def test_a_goal_of_seconds_is_a_ratio_of_speeds() -> None:
    """Half the seconds of the native server are twice its speed."""
    goal = next(goal for goal in GOALS if goal.case == "conversations")
    reached = goal.reached(results_of("conversations", {"value": 5.0}, {"value": 10.0}))
    assert reached == pytest.approx(2)
    assert goal.is_met(2.0)


def test_a_goal_without_samples_is_not_measured() -> None:
    """No samples of ours or of the peer: no figure."""
    assert Goal("hybrid", "t", 1, peer=NATIVE).reached({}) is None
    assert Goal("hybrid", "t", 1, peer=NATIVE).reached({"hybrid": {US: [{"value": 1.0}]}}) is None


def test_goals_are_of_cases() -> None:
    """Each goal names a case that there is."""
    assert {goal.case for goal in GOALS} <= set(CASES)


def test_the_report_holds_samples_and_ratios() -> None:
    """The line of JSON has raw samples, the configuration and how many times as good we are."""
    results = results_of("restarted", {"value": 4.0, "later_ttft_s": 0.1}, {"value": 8.0})
    report = msgspec.json.decode(as_json({"threads": 2}, results))
    assert report["threads"] == 2
    assert report["samples"]["restarted"][US][0]["later_ttft_s"] == 0.1
    assert report["worker_is_times"]["restarted"][NATIVE]["middle"] == pytest.approx(2)
    assert report["goals"][0]["reached"] == pytest.approx(2)
    table = case_table(CASES["restarted"], results["restarted"])
    assert list(table.columns[4].cells) == ["", "2.000"]


def setup_with(options: dict[str, str]) -> Setup:
    """A setup of which nothing is started."""
    return Setup(
        model=Path("model.gguf"), threads=2, cells=4096, slots=4, worker_options=options,
        baseline=None, peers_python=Path("python"), llama_server=None, logs=Path(),
    )  # fmt: skip


def test_options_that_the_worker_does_not_know_are_left_out() -> None:
    """An older worker is started without what it would refuse."""
    setup = setup_with({"--no-such-option": "1", "--queue-size": "7"})
    command = worker_command(sys.executable, setup, 1)
    assert "--no-such-option" not in command
    assert command[command.index("--queue-size") + 1] == "7"
    assert "--ctx-size" in worker_options(sys.executable, None)


def test_every_case_has_a_model_and_a_peer() -> None:
    """Shapes exist, and each slot has cells."""
    for case in CASES.values():
        assert case.shape in SHAPES
        assert case.cells % case.slots == 0
    assert {US, NATIVE} <= set(PEERS)
