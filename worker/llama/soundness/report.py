"""What the child that proves says, one JSON object a line."""

from __future__ import annotations

import msgspec


class Features(msgspec.Struct, frozen=True, tag="features"):
    """Of the CPU, which the library uses, as ggml names them."""

    names: tuple[str, ...]


class ProofCase(msgspec.Struct, frozen=True, tag="case"):
    """What is computed next; rows 0: the weights are read and rearranged."""

    encoding: str
    rows: int
    attention: str = ""
    cells: str = ""

    def __str__(self) -> str:
        if not self.rows:
            return f"{self.encoding} weights as they are loaded"
        rows = f"{self.rows} row{'s' * (self.rows > 1)}"
        return f"{self.encoding} with {rows} ({self.attention} attention, {self.cells} cells)"


class WrongCase(msgspec.Struct, frozen=True, tag="wrong"):
    """The case before is off by this: squared error over squared logits, and what is allowed."""

    error: float
    allowed: float

    def __str__(self) -> str:
        return f"with an error of {self.error:.2g} where {self.allowed:g} is allowed"


class Done(msgspec.Struct, frozen=True, tag="done"):
    """All cases are right.

    worst  the largest error of all rows of a case
    """

    cases: int
    worst: float


ProofLine = Features | ProofCase | WrongCase | Done
_decoder = msgspec.json.Decoder(ProofLine)


def encode(what: ProofLine) -> bytes:
    return msgspec.json.encode(what) + b"\n"


def read(line: bytes) -> ProofLine | None:
    """What a line says; None for one that is no line of the child's."""
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError:
        return None
