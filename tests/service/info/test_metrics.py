"""GET /metrics: what happened is counted, under every name that scrapers use."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support import http
from tests.support.metrics import scrape
from tests.support.programs.processes import Server, serving
from worker.service.info.collector import ALIASES


@pytest.fixture(scope="module")
def counted(tiny: Path) -> Generator[Server]:
    with serving("--model", tiny, "--draft", "ngram", "-c", "1024", "-t", "1") as server:
        yield server


def test_requests_are_counted(counted: Server) -> None:
    """Tokens, prefix hits, outcomes and times of ended requests are in the counters."""
    before = scrape(counted.url)
    body = {"prompt": [1, *range(5, 45)], "max_tokens": 6, "ignore_eos": True, "temperature": 0}
    counted.post(body)
    usage = counted.post(body).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 40
    after = scrape(counted.url)
    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert grown["worker_requests_totallength"] == 2
    assert grown["worker_prompt_tokens_total"] == 82
    assert grown["worker_tokens_generated_total"] == 12
    assert grown["worker_prefix_hits_total"] == 40
    assert grown["worker_first_token_seconds_count"] == 2
    assert grown["worker_inter_token_seconds_count"] == 10
    assert grown["worker_first_token_seconds_bucket+Inf"] == 2
    assert grown["worker_steps_total"] >= 7
    assert after["worker_requests_running"] == 0
    assert after["worker_kv_cells_live"] == 0
    assert after["worker_kv_cells_cached"] > 40
    assert after["worker_memory_bytes"] > 10e6
    assert after["worker_vram_bytes"] == 0
    assert after["worker_uptime_seconds"] > before["worker_uptime_seconds"] > 0
    assert grown["worker_inference_duration_ms_count"] == 2
    seconds = grown["worker_request_seconds_sum"]
    assert grown["worker_inference_duration_ms_sum"] == pytest.approx(1e3 * seconds)
    assert after["worker_inference_duration_ms_bucket2500.0"] >= 2


def test_echo_with_drafting(counted: Server) -> None:
    """A scored prompt beside drafting is answered whole."""
    body = {"prompt": [5, 6, 7] * 8, "echo": True, "logprobs": 1, "max_tokens": 60}
    answer = counted.post(body | {"temperature": 0, "ignore_eos": True})
    assert answer.status_code == 200
    assert len(answer.json()["choices"][0]["logprobs"]["tokens"]) == 84


def test_every_alias_tells_the_same(counted: Server) -> None:
    """Each metric has the same value under all its names."""
    values = scrape(counted.url)
    suffixes = ("", "_total", "_count")
    for name, aliases in ALIASES.items():
        suffix = next(suffix for suffix in suffixes if name + suffix in values)
        for alias in aliases:
            assert values[alias + suffix] == values[name + suffix]


def test_head(counted: Server) -> None:
    """HEAD /metrics is 200 without a body."""
    answer = http.head(counted.url + "/metrics")
    assert (answer.status_code, answer.content) == (200, b"")
