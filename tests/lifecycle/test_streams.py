"""Standard streams of all kinds: closed, full, without a reader, a terminal."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support import http
from tests.support.programs import managers
from tests.support.programs.managers import manager
from tests.support.programs.processes import PATIENCE_S, Server, side_by_side, until


@contextlib.contextmanager
def full_pipe() -> Generator[tuple[int, int]]:
    """Both ends of a pipe that takes nothing more until somebody reads."""
    reader, writer = os.pipe()
    try:
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b".")
        os.set_blocking(writer, True)
        os.set_blocking(reader, False)
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


def test_full_pipes(tiny: Path) -> None:
    """A worker whose output nobody takes becomes ready, serves, logs again and leaves."""
    with full_pipe() as (reader, writer), manager(managers.accepts) as hive:
        process = subprocess.Popen(
            [sys.executable, "-m", "worker", "serve", "--model", str(tiny), "-t", "1",
             "--port", "0", "--callback-url", hive.url],
            stdout=writer, stderr=writer,
        )  # fmt: skip
        try:
            url = hive.wait_for(1)[0]["url"]
            assert http.post(url + "/v1/completions", json={"prompt": "a"}).status_code == 200
            os.read(reader, 1 << 20)
            process.terminate()
            assert process.wait() == 0
            assert b"Stopping" in os.read(reader, 1 << 20)
        finally:
            process.kill()
            process.wait()


def test_failing_with_a_full_pipe(tmp_path: Path) -> None:
    """A worker that cannot say why it leaves, leaves."""
    with full_pipe() as (_, writer):
        command = [sys.executable, "-m", "worker", "serve", "--port", "0",
                   "--model", str(tmp_path / "none.gguf")]  # fmt: skip
        assert subprocess.run(command, stderr=writer, timeout=PATIENCE_S).returncode == 1


def test_nobody_reads_stderr(tiny: Path) -> None:
    """A worker whose standard error lost its reader still serves and stops when told to."""
    process = subprocess.Popen(
        [sys.executable, "-m", "worker", "serve", "--model", str(tiny), "--port", "0", "-t", "1"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        url = next(line for line in process.stderr if "Ready" in line).split("Open ")[1].strip()
        process.stderr.close()
        until(lambda: http.get(url + "/health").status_code == 200)
        assert http.post(url + "/v1/completions", json={"prompt": "a"}).status_code == 200
        process.terminate()
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()


def test_closed_streams(tiny: Path) -> None:
    """Commands work with any of the standard streams closed from the start."""

    def check(closed: str) -> None:
        command = f'{sys.executable} -m worker generate a -n 1 -t 1 --model "{tiny}" {closed}'
        assert subprocess.run(["sh", "-c", command], timeout=PATIENCE_S).returncode == 0

    side_by_side(check, ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_full_disk(tiny: Path) -> None:
    """Output that cannot be written is exit 1 and a sentence."""
    command = f'{sys.executable} -m worker show "{tiny}" > /dev/full'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_closed_stdout(tiny: Path) -> None:
    """A worker whose standard output is closed still serves."""
    server = Server("--model", str(tiny), "-t", "1")
    try:
        assert server.process.stdout is not None
        server.process.stdout.close()
        server.wait_until_ready()
        assert server.post({"prompt": "a", "max_tokens": 2}).status_code == 200
    finally:
        server.end()


def test_progress_on_a_terminal(tiny: Path) -> None:
    """A terminal shows a bar while the model loads; afterwards bar and hidden cursor are gone."""
    screen, terminal = os.openpty()
    command = [
        sys.executable,
        "-m",
        "tests.support.programs.slow",
        *("serve", "-t", "1", "--port", "0", "--model", str(tiny)),
    ]
    env = {**os.environ, "STEP_SECONDS": "0.02", "LOADED": str(tiny)}
    process = subprocess.Popen(command, stderr=terminal, env=env)
    os.close(terminal)
    try:
        seen = b""
        while b"Ready after" not in seen:  # on the line that says that it is ready
            assert select.select([screen], [], [], PATIENCE_S)[0], seen
            seen += os.read(screen, 4096)
        assert b"loading tiny.gguf" in seen
        assert seen.rfind(b"\x1b[?25h") > seen.rfind(b"loading tiny.gguf")
        process.terminate()
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
        os.close(screen)
