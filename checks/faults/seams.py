"""Calls that fail, as themselves and at each of their uses."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass

EXHAUSTIVE = bool(os.environ.get("EXHAUSTIVE"))
_MOST = 400  # uses of one call in the three requests


@dataclass(frozen=True)
class Seam:
    """A call and how it fails.

    codes   errors of the system, or what llama.cpp returns
    match   part of the name of the file or socket; empty: any
    cuts    whether a client may find its connection cut
    system  whether the shim fails it, and not the program
    """

    call: str
    codes: tuple[int, ...]
    match: str = ""
    cuts: bool = False
    system: bool = False

    @property
    def name(self) -> str:
        """For the names of tests."""
        return f"{self.call} of {self.match.strip('/:[]')}" if self.match else self.call


# The socket of a client, of the manager, and the one that is listened on.
SOCKET = "socket:"
SERVING = (
    Seam("decode", (1, 2, -1, -3)),
    Seam("tokenize", (-5, -(2**31))),
    Seam("state", (0,)),
    Seam("sampler", (0,)),
    Seam("memory", (0,)),
    Seam("accept", (errno.EMFILE, errno.ECONNABORTED, errno.EPERM), cuts=True, system=True),
    Seam("recv", (errno.ECONNRESET, errno.EIO), SOCKET, cuts=True, system=True),
    Seam("send", (errno.EPIPE, errno.ENOBUFS), SOCKET, cuts=True, system=True),
    Seam("write", (errno.EIO, errno.EINTR), "pipe:", system=True),
    Seam("read", (errno.EIO,), "pipe:", system=True),
    Seam("open", (errno.EMFILE, errno.ENOENT), "/proc/", system=True),
    Seam("read", (errno.EIO,), "/proc/", system=True),
    Seam("thread", (errno.EAGAIN,), system=True),
    Seam("mmap", (errno.ENOMEM,), system=True),
)
# With a folder for states.
KEEPING = (
    *(Seam(call, (errno.ENOSPC,), "kept-here", system=True)
      for call in ("write", "fsync", "rename", "mkdir")),
    *(Seam(call, (errno.EIO,), "kept-here", system=True) for call in ("open", "read", "unlink")),
)  # fmt: skip
STARTING = (
    *(
        Seam(call, (code,), "model.gguf", system=True)
        for call, code in (("open", errno.EMFILE), ("read", errno.EIO), ("mmap", errno.ENODEV))
    ),
    Seam("decode", (1, 2, -1, -3)),
    Seam("tokenize", (-5,)),
    Seam("state", (0,)),
    Seam("socket", (errno.EMFILE,), system=True),
    Seam("bind", (errno.EADDRINUSE, errno.EACCES), system=True),
    Seam("listen", (errno.EADDRINUSE,), system=True),
    Seam("pipe", (errno.EMFILE,), system=True),
    Seam("thread", (errno.EAGAIN,), system=True),
    Seam("open", (errno.EACCES,), "/proc/", system=True),
    Seam("open", (errno.EIO,), "/sys/", system=True),
    *(Seam(call, (errno.ENOSPC,), "kept-here", system=True) for call in ("mkdir", "open", "write")),
)


def uses() -> Iterator[int]:
    """Which use fails: each in turn until the caller finds that none did, or the second."""
    yield from range(1, _MOST) if EXHAUSTIVE else (2,)


def codes(seam: Seam, *, forever: bool) -> tuple[int, ...]:
    """How it fails: in all ways, or in all that llama.cpp's decode knows.

    Python repeats a call that a signal interrupted, so one that always is never ends: that is left
    out, and no system does it.
    """
    if not EXHAUSTIVE and (seam.call != "decode" or forever):
        return seam.codes[:1]
    return tuple(code for code in seam.codes if not (forever and code == errno.EINTR))
