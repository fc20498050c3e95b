"""Workers that are killed while they write leave nothing behind that is believed and wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from checks.kills.killing import check_all
from tests.support.checkout import ROOT

KILLS = 200


def test_kills_leave_no_damage(tmp_path: Path) -> None:
    """Two hundred kills −9 in the middle of a file: every file that bears a name is whole."""
    command = [sys.executable, "-m", "checks.kills.killing", str(tmp_path), str(KILLS)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    _, disk, num_tokens = check_all(tmp_path)
    disk.close(10, [])
    assert num_tokens > 0
    assert disk.num_errors == 0
