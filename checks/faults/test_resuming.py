"""Connections that break off 500 times at random places: what is read after all is the answer.

By default 60 times; with EXHAUSTIVE=1 500 times.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random

import pytest

from checks.faults.seams import EXHAUSTIVE
from tests.support import http
from tests.support.programs.processes import Server, serving
from tests.support.resuming import id_of, numbered_events, read_in_parts
from worker.demo import MODEL_PATH

NUM_BREAKS = 500 if EXHAUSTIVE else 60


@pytest.fixture(scope="module")
def demo() -> Generator[Server]:
    """The demo model, whose streams are kept."""
    options = ("--ctx-size", "4096", "-t", "1", "--resume-seconds", "600")
    with serving("--model", MODEL_PATH, *options, step_seconds=0.002) as server:
        yield server


def test_all_is_read_once(demo: Server) -> None:
    """No event is missing or there twice, wherever its client left; then the answers are the same
    bytes as those of a client that stayed."""
    random, num_left, number = Random(17), 0, 0
    while num_left < NUM_BREAKS:
        body = {
            "prompt": f"Once upon a time there were {number} kings", "max_tokens": 400,
            "seed": number, "stream": True, "ignore_eos": True,
        }  # fmt: skip
        number += 1
        most = NUM_BREAKS - num_left
        found, count, name = read_in_parts(demo.url, "/v1/completions", body, random, most)
        num_left += count
        assert [id_of(event) for event in found] == list(range(len(found)))
        whole = http.get(f"{demo.url}/v1/streams/{name}").content
        assert numbered_events(whole) == found
        assert found[-1].endswith(b"data: [DONE]")
        assert http.client.delete(f"{demo.url}/v1/streams/{name}").status_code == 200
    assert num_left == NUM_BREAKS
