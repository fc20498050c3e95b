"""What became of one file in the child."""

from __future__ import annotations

from typing import Literal

import msgspec

Stage = Literal["refused", "not loaded", "ran", "failed", "died", "hung"]
# Bounds of the check that comes before native code.
MAX_SECONDS = 1.0  # CPU time
MAX_TEMPLATE_SECONDS = 6.0  # compiling, probing and rendering, each with a limit of its own
SPARE_BYTES = 48 << 20
BYTES_A_BYTE = 24
SOUND: frozenset[Stage] = frozenset({"refused", "not loaded", "ran"})


class Verdict(msgspec.Struct, frozen=True):
    """How far a file came and what it cost.

    stage     refused     by our check: native code never saw it
              not loaded  by llama.cpp, with a sentence
              ran         it read a text and wrote tokens
              failed      an exception that is none of ours
              died, hung  the process that loaded it
    code      of the error, or the signal's name
    seconds   CPU time of the check
    nbytes    memory that the check took at its peak, beyond what it had before
    template  CPU seconds of the chat template
    """

    stage: Stage
    code: str = ""
    message: str = ""
    seconds: float = 0.0
    nbytes: int = 0
    template: float = 0.0

    def complaint(self, size: int) -> str:
        """What must not be, of a file of `size` bytes; empty: nothing."""
        if self.stage not in SOUND:
            return f"{self.stage}: {self.code} {self.message}".strip()
        if self.seconds > MAX_SECONDS:
            return f"slow: the check took {self.seconds:.2f} s of CPU"
        if self.nbytes > SPARE_BYTES + BYTES_A_BYTE * size:
            return f"large: the check took {self.nbytes >> 20} MiB for {size} bytes"
        if self.template > MAX_TEMPLATE_SECONDS:
            return f"slow: the template took {self.template:.2f} s of CPU"
        return ""
