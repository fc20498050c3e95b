"""What an operator says of a model in the place of its file: keys of the header.

They are put into the header before it is checked, and llama.cpp is told the same, so that what was
checked is what runs.
"""

from __future__ import annotations

import msgspec

from worker.errors import UsageError
from worker.gguf.fields import Fields
from worker.gguf.header import TYPE_NAMES, TYPES, Header

Override = tuple[str, bool | int | float | str]
_KINDS: dict[type, tuple[str, ...]] = {
    bool: ("BOOL",),
    int: ("UINT32", "UINT8", "INT8", "UINT16", "INT16", "INT32", "UINT64", "INT64"),
    float: ("FLOAT32", "FLOAT64"),
    str: ("STRING",),
}
# What says how the file itself is to be read.
_FIXED = ("general.architecture", "general.alignment", "split.")


class RopeWish(msgspec.Struct, frozen=True, kw_only=True):
    """How positions are to be rotated; None: as the file says.

    factor    how many times the original context is stretched
    original  tokens that it had
    longest   tokens that a context with another base shall hold
    """

    scaling: str | None = None
    factor: float | None = None
    base: float | None = None
    original: int | None = None
    longest: int | None = None

    def overrides(self, fields: Fields) -> dict[str, int | float | str]:
        """The keys that say so. The trained length becomes what the stretched context holds."""
        trained = fields.count(".context_length") or 0
        original = self.original or fields.count(".rope.scaling.original_context_length") or trained
        found: dict[str, int | float | str] = {}
        if self.scaling is not None:
            found[".rope.scaling.type"] = self.scaling
        if self.base is not None:
            found[".rope.freq_base"] = self.base
            found[".context_length"] = max(trained, self.longest or 0)
        if self.factor is not None:
            found[".rope.scaling.factor"] = self.factor
            found[".context_length"] = int(original * self.factor)
        if self.factor is not None or self.original is not None:
            found[".rope.scaling.original_context_length"] = original
        return {fields.full(key): value for key, value in found.items()}


class Wishes(msgspec.Struct, frozen=True):
    """All of it; the overrides of keys count before those of positions."""

    keys: tuple[Override, ...] = ()
    rope: RopeWish = RopeWish()

    def overrides(self, header: Header) -> dict[str, bool | int | float | str]:
        """Key -> value. Raises UsageError for a key of another type in the file."""
        architecture = header.keys.get("general.architecture")
        fields = Fields(header, architecture if isinstance(architecture, str) else "")
        found = {**self.rope.overrides(fields), **dict(self.keys)}
        for key, value in found.items():
            if key.startswith(_FIXED):
                raise UsageError(f"--override-kv cannot change {key}.", hint="Convert the file.")
            kind = TYPE_NAMES[header.types[key]] if key in header.types else None
            if kind not in (None, *_KINDS[type(value)]):
                raise UsageError(
                    f"--override-kv has {key} as {type(value).__name__}, and the file as {kind}.",
                    hint="Write KEY=TYPE:VALUE with the file's type: int, float, bool or str.",
                )
        return found


NO_WISHES = Wishes()


def override(header: Header, overrides: dict[str, bool | int | float | str]) -> Header:
    """The header with these keys, as if the file had them."""
    types = {key: TYPES[_KINDS[type(value)][0]] for key, value in overrides.items()}
    return msgspec.structs.replace(
        header,
        keys={**header.keys, **overrides},
        types={**types, **header.types},
        offsets={**dict.fromkeys(overrides, 0), **header.offsets},
    )
