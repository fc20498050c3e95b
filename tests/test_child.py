"""What computes in a process of its own: frames, deadlines, how it ended."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from worker.child import Child, ProcessEnd

Start = Callable[[str], contextlib.AbstractContextManager[Child]]
_HEAD = (
    "import os, signal, sys, time\nfrom worker.child import Parent, bound_memory\np = Parent()\n"
)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """A child that runs these lines, with its parent as `p`."""

    @contextlib.contextmanager
    def started(lines: str) -> Generator[Child]:
        (tmp_path / "lines.py").write_text(_HEAD + lines)
        with contextlib.closing(Child("lines", os.environ | {"PYTHONPATH": str(tmp_path)})) as one:
            yield one

    return started


@pytest.mark.parametrize("size", [0, 1, 70_000, 3 << 20])
def test_frames_arrive_whole(start: Start, size: int) -> None:
    """Of any length, in order, and what the child prints comes between none of them."""
    with start(
        "while (f := p.receive()) is not None:\n os.write(1, b'odd')\n p.send(f + b'!')"
    ) as one:
        for number in (b"1", b"2"):
            one.send(number * size)
            assert one.receive() == number * size + b"!"


def test_what_is_cut_off_is_no_frame(start: Start) -> None:
    """A child that dies inside of one has sent none."""
    with start("os.write(p._output, b'\\x09\\0\\0\\0half')") as one:
        assert one.receive() is None
        assert one.ending() == ProcessEnd(0)


def test_a_deadline(start: Start) -> None:
    """A child that says nothing for so long is a TimeoutError, and still there until `close`."""
    with start("p.send(b'1')\np.receive()\np.send(b'2')\np.receive()") as one:
        assert one.receive() == b"1"
        with pytest.raises(TimeoutError):
            one.receive(within_s=0)
        one.send(b"")
        assert one.receive() == b"2"


@pytest.mark.parametrize(
    ("lines", "ending", "fault", "text"),
    [
        ("", ProcessEnd(0), None, "exit code 0"),
        ("os.write(2, b'a\\nb.\\n')\nos._exit(3)", ProcessEnd(3, "b."), None, "exit code 3: b"),
        ("os.kill(0, 9)", ProcessEnd(-9), None, "SIGKILL, perhaps out of memory"),
        ("os.kill(os.getpid(), 11)", ProcessEnd(-11), "SIGSEGV", "SIGSEGV"),
        ("os.kill(os.getpid(), 15)", ProcessEnd(-15), None, "SIGTERM"),
        (
            "os.write(2, b'error: NATIVE_DEATH: llama.cpp died of SIGBUS while.')\nos._exit(1)",
            ProcessEnd(1, "error: NATIVE_DEATH: llama.cpp died of SIGBUS while."),
            "SIGBUS",
            "exit code 1: error: NATIVE_DEATH: llama.cpp died of SIGBUS while",
        ),
    ],
)
def test_how_it_ended(
    start: Start, lines: str, ending: ProcessEnd, fault: str | None, text: str
) -> None:
    """Its code or signal, and its last line; a fault of native code is known by either."""
    with start(lines) as one:
        assert one.receive() is None
        assert one.ending() == ending
        assert (one.ending().fault, str(one.ending())) == (fault, text)


def test_much_on_standard_error_blocks_nobody(start: Start) -> None:
    """More than a pipe holds is taken while a frame is waited for, and the last line is kept."""
    with start("os.write(2, b'x' * (1 << 20) + b'\\nlast')\np.send(b'1')") as one:
        assert one.receive() == b"1"
        assert one.receive() is None
        assert one.ending() == ProcessEnd(0, "last")


def test_a_closed_child_is_gone(start: Start) -> None:
    """Also one that does not look at its input; it takes and sends nothing more."""
    with start("p.send(b'1')\nwhile True: time.sleep(1)") as one:
        assert one.receive() == b"1"
        one.close()
        with pytest.raises(ProcessLookupError):
            os.kill(one.pid, 0)
        one.send(b"more")
        assert one.receive() is None


def test_it_leaves_with_its_parent(start: Start, tmp_path: Path) -> None:
    """Whatever it is doing, after its last words."""
    left = tmp_path / "left"
    with start(f"open({str(left)!r}, 'w')\np.leave_with(lambda: os.unlink({str(left)!r}))\n"
               "p.send(b'1')\nwhile True: time.sleep(1)") as one:  # fmt: skip
        assert one.receive() == b"1"
        one._input.close()  # pyright: ignore[reportPrivateUsage]  (as our end would)
        assert one.receive() is None
        assert one.ending() == ProcessEnd(1)
    assert not left.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is bound")
def test_its_memory_is_bound(start: Start) -> None:
    """Beyond what it has by then it gets so many bytes, and then a MemoryError."""
    lines = (
        "bound_memory(64 << 20)\nsmall = bytearray(16 << 20)\np.send(b'1')\nbytearray(128 << 20)"
    )
    with start(lines) as one:
        assert one.receive() == b"1"
        assert one.receive() is None
        assert one.ending() == ProcessEnd(1, "MemoryError")


def test_ctrl_c_reaches_the_parent_alone(start: Start) -> None:
    """The child has a group of processes of its own."""
    with start("p.send(b'1')\np.receive()") as one:
        assert one.receive() == b"1"
        assert os.getpgid(one.pid) == one.pid != os.getpgid(0)
