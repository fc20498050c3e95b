"""One call fails while a worker starts: it is ready and well, or it leaves and says why.

By default the first use of some calls; with EXHAUSTIVE=1 each use in turn, until the
worker starts without having met the fault.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from checks.faults.block import Block
from checks.faults.scenario import Clients
from checks.faults.seams import EXHAUSTIVE, STARTING, Seam, uses
from checks.faults.worker import COMPILER, WHY_NOT, left_cleanly, starting
from tests.support.programs.processes import Server, WorkerProcess, became_ready

_OPTIONS = ("--ctx-size", "512", "--parallel", "2", "-t", "1", "--cache-ram", "8")
# By default one way to fail for each of these.
_QUICK = frozenset({"open of model.gguf", "decode", "thread"})


def starts_with(folder: Path, seam: Seam, code: int, use: int, *, forever: bool) -> int:
    """Start a worker that meets the fault; how often it struck."""
    block = Block(folder / "block")
    block.arm(seam.call, use, code, forever=forever, match=seam.match)
    process = starting(
        block, "--model", folder / "model.gguf", "--cache-dir", folder / "kept-here", *_OPTIONS,
        system=seam.system,
    )  # fmt: skip
    try:
        if not became_ready(process):
            assert block.hits
            left_cleanly(process)
            return block.disarm()
        hits = block.disarm()
        _is_well(process)
        return hits
    finally:
        process.end()


def _is_well(process: WorkerProcess) -> None:
    """It answers as any worker does, and leaves when asked."""
    server = Server.over(process)
    Clients(server).is_well()
    process.process.terminate()
    assert process.wait() == 0


@pytest.mark.parametrize("forever", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("seam", [pytest.param(s, id=s.name) for s in STARTING])
def test_a_start_that_fails(seam: Seam, forever: bool, tiny: Path, tmp_path: Path) -> None:
    """Ready and well, or gone with a code of the contract and one reason; never half-ready."""
    if seam.system and COMPILER is None:
        pytest.skip(WHY_NOT)
    if not EXHAUSTIVE and (seam.name not in _QUICK or forever):
        pytest.skip("with EXHAUSTIVE=1 only")
    shutil.copy(tiny, tmp_path / "model.gguf")
    for code in seam.codes if EXHAUSTIVE else seam.codes[-1:]:
        for use in uses() if EXHAUSTIVE else (1,):
            if not starts_with(tmp_path, seam, code, use, forever=forever):
                break
