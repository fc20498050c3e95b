"""A worker's metrics as figures of its load."""

from __future__ import annotations

import asyncio

import pytest

from gguf_fleet.scale.count import ReplicaFigures
from gguf_fleet.scale.observed import MetricsReader, WorkerLoad
from gguf_fleet.scale.policy import figures_of
from tests.support import http
from tests.support.gateways import Impostor, listening
from tests.support.programs import serving

TEXT = """# HELP worker_requests_running Sequences that run
worker_requests_running{model_name="a \\"b\\""} 3.0
worker_requests_waiting{model_name="a"} 2.0
worker_kv_cells_live_ratio{model_name="a"} 0.25
worker_kv_cells{model_name="a",state="live"} 77.0
worker_first_token_seconds_bucket{le="1.0",model_name="a"} 4.0
worker_first_token_seconds_sum{model_name="a"} %s
worker_first_token_seconds_count{model_name="a"} %s
"""


def test_a_text() -> None:
    """Gauges as they are; the time to the first token is of those that came last."""
    observer = MetricsReader()
    first = observer.figures(TEXT % (8.0, 4.0))
    assert first == ReplicaFigures(running=3, waiting=2, cells=0.25, first_token=2)
    for _ in range(9):
        observer.figures(TEXT % (8.0, 4.0))
    assert observer.figures(TEXT % (8.0, 4.0)).first_token == 0
    assert observer.figures(TEXT % (18.0, 6.0)).first_token == 5
    assert observer.figures(TEXT % (3.0, 1.0)).first_token == 3  # the worker is another one


def test_a_worker_says_all_of_it() -> None:
    """The names are those of a real worker, at work; its key is sent."""
    options = ("-t", "1", "-c", "1024", "-np", "1", "--cache-ram", "0", "--api-key", "k")
    with serving(*options, step_seconds=0.02) as worker:
        place = {"url": worker.url, "key": "k", "slots": 4, "limit": 68, "node": "n"}
        body = {"prompt": "Once", "max_tokens": 500, "ignore_eos": True, "stream": True}
        headers = {"authorization": "Bearer k"}

        async def look(key: str, waiting: int) -> dict[str, float]:
            """The figures, once so many wait."""
            load, given = WorkerLoad(), {**place, "key": key}
            async with asyncio.timeout(60):
                while (found := await load.figures(given)).get("waiting", 0) < waiting:
                    await asyncio.sleep(0.05)
            return found

        url = worker.url + "/v1/completions"
        with http.stream("POST", url, json=body, headers=headers) as answer:
            parts = answer.iter_raw()
            next(parts)
            with http.stream("POST", url, json=body, headers=headers):
                figures = asyncio.run(look("k", 1))
        refused = asyncio.run(look("other", 0))
    assert figures["running"] == 1
    assert 0 < figures["cells"] < 1
    assert figures["first_token"] > 0
    assert refused == {}


def test_who_does_not_answer_is_left_out() -> None:
    """No figures are better than figures of nobody."""
    with listening(Impostor(b"no", status=503)) as url:
        place = {"url": url, "key": "", "slots": 4, "limit": 68, "node": "n"}
        assert asyncio.run(WorkerLoad().figures(place)) == {}
    assert asyncio.run(WorkerLoad().figures({**place, "url": "http://127.0.0.1:1"})) == {}


class Point:
    """Of Ray's time series."""

    def __init__(self, value: float) -> None:
        self.value = value


def test_what_ray_hands_on() -> None:
    """The last point of each; a replica that says nothing is not there."""
    metrics = {
        "running": {"a": [Point(1), Point(4)], "b": [Point(2)]},
        "waiting": {"a": [Point(3)]},
        "ongoing": {"c": [Point(9)]},
    }
    found = sorted(figures_of(metrics), key=lambda each: each.running)
    assert found == [ReplicaFigures(running=2), ReplicaFigures(running=4, waiting=3)]
    assert figures_of({}) == []
    with pytest.raises(IndexError):
        figures_of({"running": {"a": [Point(1)]}})[1]
