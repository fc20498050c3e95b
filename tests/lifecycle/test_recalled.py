"""What may be guessed from other texts, in its file."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.programs.processes import Server, serving

BODY = {"prompt": "Once upon a time there was", "max_tokens": 40, "temperature": 0}


def test_over_a_restart(tmp_path: Path) -> None:
    """A question that comes again after a restart is answered from guesses, with the same text."""
    answers = list[dict[str, Any]]()
    for _ in range(2):
        with serving("--cache-dir", tmp_path, "-np", "1") as server:
            answers.append(server.post(BODY).json())
            stop(server)
    assert answers[1]["timings"]["draft_n_accepted"] > 0
    assert answers[0]["choices"][0]["text"] == answers[1]["choices"][0]["text"]
    assert [path.suffix for path in tmp_path.glob("recall/*")] == [".tokens"]


def stop(server: Server) -> None:
    """End it as managers do."""
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _foreign(path: Path) -> None:
    path.write_bytes(np.full(100, 10**6, np.int32).tobytes())


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("spoil", [_empty, _foreign, _huge, _pipe])
def test_a_file_that_cannot_be_used(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    """It is put aside with a line in the log, and the worker serves."""
    with serving("--cache-dir", tmp_path) as server:
        server.post(BODY)
        stop(server)
    (path,) = tmp_path.glob("recall/*.tokens")
    spoil(path)
    with serving("--cache-dir", tmp_path) as server:
        assert server.post(BODY).status_code == 200
        assert path.with_suffix(".bad").exists()
        stop(server)
        assert server.logged("texts for drafting are put aside")["file"] == str(path)
    assert path.exists()
