"""Commands that the installer runs, and locks between installers."""

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path

from scripts.install.talk import InstallError, advice, progress, say

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
PIP_SETTINGS = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_USER": "0",
    # The first holds for packages, and up to pip 25.2 for build tools; the second for these since.
    "PIP_CONSTRAINT": f"{CONSTRAINTS.as_uri()} {os.environ.get('PIP_CONSTRAINT', '')}".strip(),
    "PIP_BUILD_CONSTRAINT": CONSTRAINTS.as_uri(),
}


def run(doing: str, command: list[str], log: Path, **settings: str) -> None:
    """Run a command with its output in the log, and show its progress.

    Raises InstallError, such as "Installing packages failed", from `doing`; `settings` are
    environment variables. No process of the command outlives an interrupt.
    """
    process = subprocess.Popen(  # noqa: S603  (the command is ours)
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        encoding="utf-8", errors="replace", cwd=ROOT, env=os.environ | PIP_SETTINGS | settings,
        process_group=0,
    )  # fmt: skip
    assert process.stdout
    lines: list[str] = []
    try:
        with log.open("a", encoding="utf-8") as file, progress() as take:
            file.write(f"\n$ {shlex.join(command)}\n")
            for line in process.stdout:
                lines.append(line)
                file.write(line)
                file.flush()
                take(line)
        process.wait()
    except BaseException:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            try:
                os.killpg(process.pid, signal.SIGINT)  # pip then puts things back
                process.wait(5)
            finally:  # also at a second Ctrl-C
                os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.returncode:
        raise InstallError(f"{doing} failed (log: {log}). {advice(''.join(lines))}")


def output_of(*command: str) -> str:
    """Return what a command prints; nothing when it cannot be run or fails."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.check_output(  # noqa: S603  (the command is ours)
            command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
        ).strip()
    return ""


@contextlib.contextmanager
def hold_lock(path: Path, busy: str) -> Generator[None]:
    """Hold the lock file; say `busy` when another process holds it, and wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(busy)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
