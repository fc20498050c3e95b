"""Typed access to the keys of a header. A value of the wrong type is an error, never a guess."""

from __future__ import annotations

from typing import NoReturn, TypeVar

import numpy as np

from worker.gguf.header import RECONVERT, TYPE_NAMES, Header, Value, refuse
from worker.gguf.strings import StringArray

T = TypeVar("T")


class Fields:
    """The keys of `header`. Names that begin with a dot get the architecture's name in front."""

    def __init__(self, header: Header, architecture: str) -> None:
        self.header = header
        self.architecture = architecture

    def full(self, key: str) -> str:
        """The key as it is in the file: `.block_count` is `llama.block_count`."""
        return self.architecture + key if key.startswith(".") else key

    def __contains__(self, key: str) -> bool:
        return self.full(key) in self.header.keys

    def get(self, key: str) -> Value | None:
        """The value, or None where the key is absent."""
        return self.header.keys.get(self.full(key))

    def count(self, key: str) -> int | None:
        """A non-negative whole number."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong_type(key, "a whole number")
        if value < 0:
            self.bad(key, value, "not below 0")
        return value

    def number(self, key: str) -> float | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong_type(key, "a number")
        return float(value)

    def text(self, key: str) -> str | None:
        return self._of(key, str, "a string")

    def flag(self, key: str) -> bool | None:
        return self._of(key, bool, "true or false")

    def strings(self, key: str) -> StringArray | None:
        return self._of(key, StringArray, "an array of strings")

    def _of(self, key: str, kind: type[T], wanted: str) -> T | None:
        value = self.get(key)
        if value is not None and not isinstance(value, kind):
            self.wrong_type(key, wanted)
        return value

    def word(self, key: str) -> str:
        """A string; empty where the key is absent or is no string."""
        value = self.get(key)
        return value if isinstance(value, str) else ""

    def numbers(self, key: str) -> tuple[int, ...]:
        """The whole numbers of an array; one number is an array of one; empty where absent."""
        value = self.get(key)
        if value is None:
            return ()
        if isinstance(value, int):
            return (int(value),)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iub":
            self.wrong_type(key, "an array of whole numbers")
        return tuple(int(number) for number in value.tolist())

    def per_layer(self, key: str, layers: int) -> tuple[int, ...] | None:
        """One whole number for each layer, from an array or from one number for all."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, np.ndarray):
            return (self.count(key) or 0,) * layers
        numbers = self.numbers(key)
        if len(numbers) != layers:
            self.bad(key, len(numbers), f"one element for each of {layers} layers")
        if min(numbers, default=0) < 0:
            self.bad(key, min(numbers), "not below 0")
        return numbers

    def wrong_type(self, key: str, wanted: str) -> NoReturn:
        """Raise WRONG_TYPE for `key`."""
        full = self.full(key)
        raise refuse(
            "WRONG_TYPE",
            f"{full} must be {wanted}.",
            at=self.header.offsets.get(full),
            field=full,
            got=TYPE_NAMES[self.header.types[full]],
            limit=wanted,
            hint=RECONVERT,
        )

    def bad(self, key: str, got: object, wanted: str, code: str = "BAD_VALUE") -> NoReturn:
        """Raise BAD_VALUE, or `code`, for `key`."""
        full = self.full(key)
        raise refuse(
            code,
            f"{full} is {got}, it must be {wanted}.",
            at=self.header.offsets.get(full),
            field=full,
            got=got,
            limit=wanted,
            hint=RECONVERT,
        )

    def refuse_missing(self, key: str) -> NoReturn:
        """Raise MISSING_KEY for `key`."""
        full = self.full(key)
        raise refuse(
            "MISSING_KEY",
            f"The key {full} is missing.",
            field=full,
            hint=RECONVERT,
        )
