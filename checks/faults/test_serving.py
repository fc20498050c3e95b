"""One call fails while clients are served: each is told, the next ones are served as before.

By default the second use of each call; with EXHAUSTIVE=1 each use in turn, until the
three requests come through without the fault.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from checks.faults.block import Block
from checks.faults.scenario import CUT, Clients
from checks.faults.seams import EXHAUSTIVE, KEEPING, SERVING, Seam, codes, uses
from checks.faults.worker import COMPILER, WHY_NOT, faulty, left_cleanly
from tests.support.programs.processes import Server

_OPTIONS = ("--ctx-size", "512", "--parallel", "2", "-t", "1", "--cache-ram", "8")


class Bench:
    """A worker that is replaced where a fault ended it."""

    def __init__(self, folder: Path, tiny: Path, *options: str, system: bool) -> None:
        self.block = Block(folder / f"block-{system}")
        self._arguments = ("--model", str(tiny), *_OPTIONS, *options)
        self._system = system
        self._running: Generator[Clients] | None = None

    def clients(self) -> Clients:
        """Of the worker, started where there is none."""
        if self._running is None:
            self._running = self._start()
            self._clients = next(self._running)
        return self._clients

    def _start(self) -> Generator[Clients]:
        with faulty(self.block, *self._arguments, system=self._system) as server:
            yield Clients(server)

    def close(self) -> None:
        """End it."""
        running, self._running = self._running, None
        if running is not None:
            running.close()

    def server(self) -> Server:
        """The worker that runs."""
        return self.clients().server


@pytest.fixture(scope="module")
def bench(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Bench]:
    """Without the shim."""
    made = Bench(tmp_path_factory.mktemp("faults"), tiny, system=False)
    yield made
    made.close()


@pytest.fixture(scope="module")
def system(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Bench]:
    """With the shim."""
    if COMPILER is None:
        pytest.skip(WHY_NOT)
    made = Bench(tmp_path_factory.mktemp("faults"), tiny, system=True)
    yield made
    made.close()


@pytest.fixture(scope="module")
def keeping(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Bench]:
    """With the shim and a folder for states."""
    if COMPILER is None:
        pytest.skip(WHY_NOT)
    folder = tmp_path_factory.mktemp("faults")
    made = Bench(folder, tiny, "--cache-dir", str(folder / "kept-here"), system=True)
    yield made
    made.close()


def fails_at(bench: Bench, seam: Seam, code: int, use: int, *, forever: bool) -> int:
    """Let the three clients meet the fault, check what they and the next ones get; how often it
    struck."""
    clients = bench.clients()
    bench.block.arm(seam.call, use, code, forever=forever, match=seam.match)
    try:
        got = clients.ask()
    finally:
        hits = bench.block.disarm()
    if hits and clients.has_left():
        left_cleanly(clients.server)
        bench.close()
        return hits
    clients.is_well()
    for text, golden in zip(got, clients.golden, strict=True):
        assert not text.startswith("text: ") or text == golden
        assert text != CUT or seam.cuts
        assert hits or text == golden
    return hits


def each_use(bench: Bench, seam: Seam, *, forever: bool) -> int:
    """Every use in turn, with every code, until none is hit; hits in all."""
    total = 0
    for code in codes(seam, forever=forever):
        for use in uses():
            hits = fails_at(bench, seam, code, use, forever=forever)
            total += hits
            if not hits:
                break
    return total


def of(seams: tuple[Seam, ...], *, system: bool) -> list[object]:
    """Parameters: those of the shim, or those of the program."""
    return [pytest.param(s, id=s.name) for s in seams if s.system is system]


HOW = pytest.mark.parametrize("forever", [False, True], ids=["once", "for good"])


@HOW
@pytest.mark.parametrize("seam", of(SERVING, system=False))
def test_llama_cpp_fails(seam: Seam, forever: bool, bench: Bench) -> None:
    """llama.cpp or Python refuses: the client is told, and the next one is served as before."""
    assert each_use(bench, seam, forever=forever) or not EXHAUSTIVE


@HOW
@pytest.mark.parametrize("seam", of(SERVING, system=True))
def test_the_system_fails(seam: Seam, forever: bool, system: Bench) -> None:
    """The system refuses: the client is told or cut, and the next one is served as before."""
    if seam.call == "accept" and forever:
        pytest.skip("nobody is accepted, so nobody can be told")
    if not EXHAUSTIVE and forever:
        pytest.skip("with EXHAUSTIVE=1 only")
    each_use(system, seam, forever=forever)


@HOW
@pytest.mark.parametrize("seam", of(KEEPING, system=True))
def test_the_disk_fails(seam: Seam, forever: bool, keeping: Bench) -> None:
    """The folder for states fails: nobody notices."""
    if not EXHAUSTIVE and forever:
        pytest.skip("with EXHAUSTIVE=1 only")
    each_use(keeping, seam, forever=forever)


def test_a_worker_under_faults_leaves_as_asked(bench: Bench) -> None:
    """After all of it SIGTERM is still answered with 0."""
    server = bench.server()
    server.process.terminate()
    assert server.wait() == 0
    bench.close()
