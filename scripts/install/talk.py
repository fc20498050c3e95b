"""What the user sees: sentences, a line of progress, and advice when a command fails."""

import contextlib
import os
import re
import shutil
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Generator
from pathlib import Path

ADVICE = Path(__file__).with_name("advice.toml")
# What a line of output contains -> what goes on.
ACTIVITIES = (
    (r"Installing build dependencies: started", "fetching the build tools"),
    (r"\*\*\* Configuring CMake", "configuring"),
    (r"^WARNING: Retrying", "no answer from the package index, trying again"),
    (r"^\s*(Collecting|Downloading) (?:\S*/)?([\w.-]+)", r"\1 \2"),
    (r"^Installing collected packages", "installing packages"),
)
SECONDS = 5.0  # between two lines of progress where stderr is no terminal


class InstallError(Exception):
    """Its text is for the user: one sentence with the next step, then perhaps some output."""


def say(text: str) -> None:
    """Print a sentence to stderr."""
    print(f"gguf-worker: {text}", file=sys.stderr, flush=True)


def since(started: float) -> str:
    """Format the time since a reading of `time.monotonic`, such as 2:05."""
    seconds = int(time.monotonic() - started)
    return f"{seconds // 60}:{seconds % 60:02}"


def advice(output: str) -> str:
    """Return what to do after this output; its errors where nothing is known about them."""
    for cause, text in tomllib.loads(ADVICE.read_text()).items():
        if re.search(cause, output, re.IGNORECASE):
            return text
    lines = output.splitlines()
    errors = [line for line in lines if re.search(r"error:|CMake Error|FAILED:", line, re.I)]
    return "It said:" + "".join(f"\n  {line.strip()[:200]}" for line in (errors or lines)[-15:])


def activity(line: str) -> str | None:
    """Return what a line of pip's, CMake's or ninja's output tells; None where it tells nothing."""
    if step := re.match(r"\s*\[\s*(\d+)/(\d+)\](?:.*?([^/\s]+)\.o\b)?", line):
        share = 100 * int(step[1]) // int(step[2])
        return f"[{step[1]}/{step[2]}] {share:3}%" + (f"  compiled {step[3]}" if step[3] else "")
    found = ((re.search(pattern, line), text) for pattern, text in ACTIVITIES)
    return next((match.expand(text) for match, text in found if match), None)


@contextlib.contextmanager
def progress() -> Generator[Callable[[str], None]]:
    """Give a function that takes lines of output; show every now and then what they tell."""
    terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    started, doing, over = time.monotonic(), "", threading.Event()

    def take(line: str) -> None:
        nonlocal doing
        doing = activity(line) or doing

    def draw() -> None:
        drawn = ""
        while not over.wait(0.5 if terminal else SECONDS):
            text = f"  {since(started)}  {doing}"
            if terminal:
                text = f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K"
                print(text, end="", file=sys.stderr, flush=True)
            elif doing != drawn:
                print(text, file=sys.stderr, flush=True)
                drawn = doing

    drawer = threading.Thread(target=draw)
    drawer.start()
    try:
        yield take
    finally:
        over.set()
        drawer.join()
        print("\r\x1b[K" if terminal else "", end="", file=sys.stderr, flush=True)
