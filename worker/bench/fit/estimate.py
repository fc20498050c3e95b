"""What each tensor harms in each encoding, in nats: its errors (`harm.py`) times what probes say
of them (`probes.py`).

An encoding's error is known to some percent by ggml's own rounding, and what a unit of it harms is
a matter of the tensor. So a tensor has one factor for all encodings. Only tensors with a large part
of all harm are probed in each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from worker.bench.fit.choice import EncodingOption, choose
from worker.gguf.header import TensorInfo
from worker.gguf.quant import ENCODINGS
from worker.gguf.reader import align
from worker.llama.rounding import NUMBERS

ALIGNMENT = 32
_BLOCK = re.compile(r"blk\.(\d+)\.")
# What a tensor may become, and what presets use. Those on the right of 2 bits need importance.
KINDS = (
    "IQ2_XS",
    "IQ2_S",
    "Q2_K",
    "IQ3_XXS",
    "Q3_K",
    "IQ3_S",
    "IQ4_XS",
    "IQ4_NL",
    "Q4_0",
    "Q4_1",
    "Q4_K",
    "Q5_0",
    "Q5_1",
    "Q5_K",
    "Q6_K",
    "Q8_0",
)
_GUIDED = frozenset({"IQ2_XS", "IQ2_S", "IQ3_XXS"})
_PROBE_BITS = 3.5
_LARGE = 0.05  # of all harm: a tensor with so much of it is probed in each of its encodings


class Estimate:
    """What each tensor takes and harms in each encoding.

    fixed  bytes of the file that no choice changes
    """

    def __init__(
        self,
        tensors: Mapping[str, TensorInfo],
        errors: Mapping[str, Mapping[str, float]],
        factors: Mapping[str, float],
        fixed: int,
    ) -> None:
        self._tensors, self._errors, self._factors, self.fixed = tensors, errors, factors, fixed
        self.names = tuple(errors)
        self.options = [self._options(name) for name in self.names]

    def _options(self, name: str) -> list[EncodingOption]:
        """Encodings of a tensor that no other one of its beats in bytes and harm."""
        own = ENCODINGS[self._tensors[name].type].name
        every = [
            EncodingOption(kind, size_in(self._tensors[name], kind), self.harm(name, kind))
            for kind in (*self._errors[name], own)
        ]
        every.sort(key=lambda option: (option.nbytes, option.harm))
        front: list[EncodingOption] = []
        for option in every:
            if not front or option.harm < front[-1].harm:
                front.append(option)
        return front

    def harm(self, name: str, kind: str) -> float:
        """Nats that the tensor adds in that encoding."""
        if kind == ENCODINGS[self._tensors[name].type].name or kind in ("F32", "F16", "BF16"):
            return 0.0
        return self._factors[name] * self._errors[name][kind]

    def total(self, encodings: Mapping[str, str]) -> float:
        """Nats of a mix; NaN if an encoding of its was not looked at."""
        try:
            return sum(self.harm(name, encodings[name]) for name in self.names)
        except KeyError:
            return math.nan

    def best(self, nbytes: int) -> dict[str, str]:
        """The mix with the least harm in a file of so many bytes. Raises ValueError."""
        chosen = choose(self.options, nbytes - self.fixed)
        return {name: option.encoding for name, option in zip(self.names, chosen, strict=True)}


def size_in(tensor: TensorInfo, kind: str) -> int:
    """Bytes of a tensor in a file, in that encoding."""
    encoding = ENCODINGS[NUMBERS[kind]]
    return align(tensor.elements // encoding.block * encoding.nbytes, ALIGNMENT)


def quantized_part(encodings: Mapping[str, str]) -> dict[str, str]:
    """The tensors of a mix that are quantized."""
    return {name: kind for name, kind in encodings.items() if ENCODINGS[NUMBERS[kind]].quantized}


def kinds_for(tensor: TensorInfo, known: Collection[str]) -> tuple[str, ...]:
    """Encodings whose blocks fit the tensor's rows, and that llama.cpp makes of it.

    known: tensors whose importance is
    """
    is_known = tensor.name in known
    return tuple(
        kind
        for kind in KINDS
        if tensor.shape[0] % ENCODINGS[NUMBERS[kind]].block == 0
        and (is_known or kind not in _GUIDED)
    )


def coarse_of(kinds: tuple[str, ...]) -> str:
    """The encoding of a probe: coarse enough to be measured, fine enough to be in proportion."""
    return min(kinds, key=lambda kind: abs(ENCODINGS[NUMBERS[kind]].bits - _PROBE_BITS))


def layer_of(name: str) -> int:
    """The layer in a tensor's name; -1: none."""
    match = _BLOCK.match(name)
    return int(match[1]) if match else -1


def kind_of(name: str) -> str:
    """A tensor's name without its layer."""
    return _BLOCK.sub("", name)


def probe_groups(
    candidates: Mapping[str, tuple[str, ...]], bands: int
) -> tuple[dict[str, str], ...]:
    """Tensors that share a factor, with the encoding of their probe: of one kind, in neighbouring
    layers, at most `bands` groups of a kind."""
    kinds: dict[str, list[str]] = {}
    for name in sorted(candidates, key=layer_of):
        kinds.setdefault(kind_of(name), []).append(name)
    return tuple(
        {str(name): coarse_of(candidates[str(name)]) for name in part}
        for names in kinds.values()
        for part in np.array_split(np.array(names), min(bands, len(names)))
    )


def factors_of(
    groups: Sequence[Mapping[str, str]],
    made: Sequence[float],
    errors: Mapping[str, Mapping[str, float]],
) -> dict[str, float]:
    """Tensor -> nats for a unit of its error, by its group's probe.

    A probe that shows nothing gets the smallest factor of all: nothing is without harm.
    """
    sums = [sum(errors[name][kind] for name, kind in group.items()) for group in groups]
    found = [max(0.0, kld) / error if error else 0.0 for kld, error in zip(made, sums, strict=True)]
    least = min((factor for factor in found if factor > 0), default=1.0)
    return {
        name: max(factor, least)
        for group, factor in zip(groups, found, strict=True)
        for name in group
    }


def large_probes(
    groups: tuple[dict[str, str], ...],
    made: Sequence[float],
    candidates: Mapping[str, tuple[str, ...]],
    most: int,
) -> tuple[dict[str, str], ...]:
    """At most so many probes of the tensors that harm most, in each encoding: there the estimate's
    error matters. Such is an embedding that is the output matrix too, which has two kinds of error.
    """
    total = sum(max(0.0, kld) for kld in made)
    large = [
        (kld, *group.items())
        for group, kld in zip(groups, made, strict=True)
        if len(group) == 1 and kld > _LARGE * total
    ]
    large.sort(reverse=True)
    found: list[dict[str, str]] = []
    for _, (name, coarse) in large:
        own = [{name: kind} for kind in candidates[name] if kind != coarse]
        if len(found) + len(own) > most:
            break
        found += own
    return tuple(found)
