"""A worker on a GPU with streams of many clients."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from checks.gpu.asked import TOKENS, said, text
from checks.gpu.conftest import Accelerator
from tests.support import http
from tests.support.metrics import scrape
from tests.support.programs.offloaded import LAYERS
from tests.support.programs.processes import Server, serving

STREAMS = 64


@pytest.fixture(scope="module")
def server(gpu: Accelerator) -> Generator[Server]:
    """With a slot for each stream, and all its layers on the device."""
    with serving(*gpu.words, "-c", str(STREAMS * 256), "-np", str(STREAMS)) as running:
        yield running


def test_all_layers_are_there(gpu: Accelerator, server: Server) -> None:
    """The log, /health and /info say so."""
    ready = server.logged("ready")
    assert ready["layers"] == {gpu.name: LAYERS}
    assert ready["kv"] == {gpu.name: LAYERS - 1}
    assert server.health()["resident"] is True
    info = http.get(server.url + "/info").json()
    assert info["vram_bytes"] / 1e6 == pytest.approx(ready["buffers_mb"][gpu.name], abs=0.51)


@pytest.mark.parametrize("streams", [8, STREAMS])
def test_streams_share_steps(server: Server, streams: int) -> None:
    """Each gets all its tokens, in far fewer steps than tokens; alone the text is what it was."""
    before, alone = scrape(server.url)["worker_steps_total"], text(server)
    with ThreadPoolExecutor(streams) as pool:
        prompts = [[1, 300 + number, 301, 302 + number] for number in range(streams)]
        answers = list(pool.map(partial(said, server), prompts))
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [TOKENS] * streams
    steps = scrape(server.url)["worker_steps_total"] - before
    assert steps < (1 + streams / 2) * TOKENS
    assert text(server) == alone
