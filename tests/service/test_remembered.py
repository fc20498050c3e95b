"""Nothing of what clients ask for stays."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from checks.soak.soaked import memory_of
from tests.support import http
from tests.support.programs.processes import serving
from worker.limits import HEADERS

_LONG = HEADERS.most - 2_000
_COUNT = 1200  # so that what is imported meanwhile does not matter


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is counted by Linux")
@pytest.mark.parametrize("place", ["/v1/models/{}", "/v1/jobs/{}/stream", "/v1/requests?x={}"])
def test_paths_and_queries_do_not_stay(tiny: Path, place: str) -> None:
    """However long they are: Litestar kept 1,024 of them, 65 MB."""
    with serving("--model", tiny) as server:

        def ask(number: int) -> None:
            name = f"{number:016}".ljust(_LONG, "a")
            http.get(server.url + place.format(name))

        for number in range(20):
            ask(number)
        before = memory_of(server.pid)["Anonymous"]
        for number in range(_COUNT):
            ask(20 + number)
        assert memory_of(server.pid)["Anonymous"] < before + _COUNT * _LONG * 0.4
