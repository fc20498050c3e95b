"""What a manager is told fails at any of its calls: a heartbeat is followed by the next one, a
callback is tried again, and clients notice nothing."""

from __future__ import annotations

import errno
from collections.abc import Generator
from pathlib import Path

import pytest

from checks.faults.block import Block
from checks.faults.scenario import Clients
from checks.faults.seams import EXHAUSTIVE, SOCKET, Seam
from checks.faults.worker import COMPILER, WHY_NOT, faulty, left_cleanly, starting
from tests.support.programs.managers import Manager, accepts, manager
from tests.support.programs.processes import until

# While no client asks, heartbeats alone use sockets.
REPORTING = (
    Seam("socket", (errno.EMFILE, errno.ENOBUFS)),
    Seam("connect", (errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EADDRNOTAVAIL), SOCKET),
    Seam("send", (errno.EPIPE, errno.ECONNRESET), SOCKET),
    Seam("recv", (errno.ECONNRESET, errno.EIO), SOCKET),
)
_MOST = 20  # uses of one call in a heartbeat
_OPTIONS = ("--ctx-size", "512", "--parallel", "2", "-t", "1", "--heartbeat-interval", "0.1")


class Reporting:
    """A worker that sends heartbeats, and who hears them."""

    def __init__(self, clients: Clients, hears: Manager, block: Block) -> None:
        self.clients, self._hears, self._block = clients, hears, block

    def fails_at(self, seam: Seam, code: int, use: int, *, forever: bool) -> int:
        """Heartbeats meet the fault; how often it struck before three arrived or two were hit."""
        heard = len(self._hears.bodies)
        self._block.arm(seam.call, use, code, forever=forever, match=seam.match)
        wanted = 2 if forever else 1
        until(lambda: self._block.hits >= wanted or len(self._hears.bodies) >= heard + 3)
        hits = self._block.disarm()
        self._hears.wait_for(len(self._hears.bodies) + 2)
        return hits


@pytest.fixture(scope="module")
def reporting(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Reporting]:
    """One for all faults: none of them ends it."""
    if COMPILER is None:
        pytest.skip(WHY_NOT)
    block = Block(tmp_path_factory.mktemp("faults") / "block")
    with manager(accepts) as hears:
        options = ("--model", tiny, *_OPTIONS, "--heartbeat-url", hears.url)
        with faulty(block, *options, system=True) as server:
            yield Reporting(Clients(server), hears, block)


@pytest.mark.parametrize("forever", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("seam", [pytest.param(seam, id=seam.name) for seam in REPORTING])
def test_a_heartbeat_fails(seam: Seam, forever: bool, reporting: Reporting) -> None:
    """At its first use, with EXHAUSTIVE=1 at each, until heartbeats come through without it."""
    total = 0
    for code in seam.codes if EXHAUSTIVE else seam.codes[:1]:
        for use in range(1, _MOST if EXHAUSTIVE else 2):
            hits = reporting.fails_at(seam, code, use, forever=forever)
            total += hits
            if not hits:
                break
    assert total
    reporting.clients.is_well()


@pytest.mark.skipif(COMPILER is None, reason=WHY_NOT)
def test_a_callback_fails_once(tiny: Path, tmp_path: Path) -> None:
    """It is tried again, and the worker serves."""
    block = Block(tmp_path / "block")
    block.arm("connect", 1, errno.ECONNREFUSED, match=SOCKET)
    with manager(accepts) as hears:
        options = ("--model", tiny, "-t", "1", "--callback-url", hears.url)
        with faulty(block, *options, system=True) as server:
            assert len(hears.wait_for(1)) == 1
            assert block.disarm() == 1
            Clients(server).is_well()


@pytest.mark.skipif(COMPILER is None, reason=WHY_NOT)
def test_a_callback_fails_for_good(tiny: Path, tmp_path: Path) -> None:
    """Nobody would send it work: the worker leaves, and says why."""
    block = Block(tmp_path / "block")
    block.arm("connect", 1, errno.ECONNREFUSED, forever=True, match=SOCKET)
    with manager(accepts) as hears:
        left_cleanly(starting(block, "--model", tiny, "-t", "1", "--callback-url", hears.url))
        assert block.disarm() > 1
        assert not hears.bodies
