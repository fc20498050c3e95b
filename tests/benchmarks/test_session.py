"""The session of an agent, on a small model that recites it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from benchmarks.peers.processes import PeerError
from benchmarks.session.model import SHAPE, write_reciting
from benchmarks.session.replay import replay
from benchmarks.session.story import TURNS, story
from worker.bench.measure.server import model_server
from worker.settings import Settings


def test_turns_hold_what_is_prescribed() -> None:
    """A turn's prompt is the one before, its answer and a result, but behind the compaction."""
    asks = story(0)
    assert [ask.kind for ask in asks].count("turn") == TURNS
    turns = [ask for ask in asks if ask.kind == "turn"]
    kept = [
        later.messages[:-2] == earlier.messages and later.messages[-2].content == earlier.answer
        for earlier, later in itertools.pairwise(turns)
    ]
    assert kept.count(False) == 1
    assert asks[: len(story(0, 3))] == story(0, 3)


def test_agents_share_the_tools_alone() -> None:
    """The system prompt is the same, and each says something else."""
    ours, theirs = story(0), story(1)
    assert ours[0].messages[0] == theirs[0].messages[0]
    assert not {ask.answer for ask in ours} & {ask.answer for ask in theirs}


def test_a_worker_says_what_is_prescribed(tmp_path: Path) -> None:
    """Each turn computes what is new in it; another story is not what the model says."""
    asks = story(0, 3)
    shape = replace(SHAPE, layers=1, feed_forward=512, vocab=40_000)
    model = write_reciting(tmp_path / "reciting.gguf", [asks], shape)
    with model_server(model, Settings(ctx_size=8192, parallel=1, threads=1)) as server:
        url = f"http://{server.host}:{server.port}/v1"
        found = replay(url, [asks], recited=True)
        with pytest.raises(PeerError, match="is prescribed"):
            replay(url, [story(1, 1)], recited=True)
        forced = replay(url, [story(1, 1)], recited=False)
    first, title, second, third = found.agents[0]
    assert (title.kind, first.cached) == ("title", 0)
    for earlier, later in ((first, second), (second, third)):
        assert later.cached >= earlier.computed + earlier.cached
    assert [one.written for one in forced.agents[0]] == [
        len(ask.answer) // 4 for ask in story(1, 1)
    ]
    totals = found.totals()
    assert totals["written"] == sum(one.written for one in found.agents[0])
    assert totals["ttft_max_s"] >= totals["ttft_median_s"] > 0
    assert msgspec.json.decode(msgspec.json.encode(found))["agents"][0][1]["kind"] == "title"
