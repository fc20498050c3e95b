"""Coding agents at work: what `benchmarks.session` replays, on the model that recites it."""

from __future__ import annotations

from benchmarks.peers.cases.case import Sample, Start, over_http
from benchmarks.peers.prompts import Prompts
from benchmarks.session.replay import replay
from benchmarks.session.story import story


def one_agent(start: Start, _: Prompts) -> Sample:
    """Seconds for the whole session of one agent."""
    return _session(start, 1)


def three_agents(start: Start, _: Prompts) -> Sample:
    """Of three at once."""
    return _session(start, 3)


def _session(start: Start, agents: int) -> Sample:
    stories = [story(agent) for agent in range(agents)]
    with start() as endpoint:
        totals = replay(f"{over_http(endpoint).url}/v1", stories, recited=True).totals()
    return {"value": totals.pop("seconds")} | totals
