"""Shared memory that says which call fails: the test writes it, the worker under test reads it."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

SIZE = 4096
VARIABLE = "FAULT_BLOCK"
_NAME, _MATCH, _NUMBERS = 0, 32, 160
_LAYOUT = struct.Struct("<qiiqq")  # countdown, forever, code, calls, hits


class Block:
    """One fault at a time.

    call       name of the call that fails
    match      only calls on a file or a socket whose name holds this text
    countdown  which of them fails: 1 is the next one; 0: none
    forever    whether all later ones fail too
    code       the error's number, or what the call returns
    """

    def __init__(self, path: Path) -> None:
        """Over a file; it is made where there is none."""
        if not path.exists():
            path.write_bytes(bytes(SIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), SIZE)
        self.path = path

    def arm(
        self, call: str, countdown: int, code: int, *, forever: bool = False, match: str = ""
    ) -> None:
        """Count from now on, and fail that call."""
        self.disarm()
        self._memory[_MATCH:_NUMBERS] = match.encode().ljust(_NUMBERS - _MATCH, b"\0")
        _LAYOUT.pack_into(self._memory, _NUMBERS, countdown, forever, code, 0, 0)
        self._memory[_NAME:_MATCH] = call.encode().ljust(_MATCH - _NAME, b"\0")  # begins it

    def disarm(self) -> int:
        """Let everything work again; how many calls failed."""
        hits = self.hits
        self._memory[_NAME:_MATCH] = bytes(_MATCH - _NAME)
        return hits

    @property
    def hits(self) -> int:
        """Calls that failed since it was armed."""
        return _LAYOUT.unpack_from(self._memory, _NUMBERS)[4]

    @property
    def calls(self) -> int:
        """Calls that matched since it was armed."""
        return _LAYOUT.unpack_from(self._memory, _NUMBERS)[3]

    def strikes(self, call: str) -> int | None:
        """The code if this call must fail, else None. For the worker's side."""
        name = self._memory[_NAME:_MATCH].rstrip(b"\0").decode()
        if name != call:
            return None
        countdown, forever, code, calls, hits = _LAYOUT.unpack_from(self._memory, _NUMBERS)
        calls += 1
        strikes = bool(countdown) and (calls == countdown or (forever and calls > countdown))
        _LAYOUT.pack_into(self._memory, _NUMBERS, countdown, forever, code, calls, hits + strikes)
        return code if strikes else None
