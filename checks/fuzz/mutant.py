"""A damaged file, described by a seed and a list of steps.

    llama-bpe token=4711 cut=12      the seed `llama-bpe`, then two changes

A step is a mutator and the number that its choices are drawn from. The same description gives the
same bytes, and a step that is left out changes nothing about the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from checks.fuzz.corpus import Seed, corpus
from checks.fuzz.mutators.binary import BINARY
from checks.fuzz.mutators.header import HEADER, Structure
from checks.fuzz.mutators.numbers import NUMBERS_OF_MODEL
from checks.fuzz.mutators.templates import TEMPLATES
from checks.fuzz.mutators.tensors import TENSORS
from checks.fuzz.mutators.vocabulary import VOCABULARY
from tests.support.models.ggufs import Gguf

STRUCTURE: dict[str, Structure] = {
    **HEADER, **NUMBERS_OF_MODEL, **VOCABULARY, **TENSORS, **TEMPLATES,
}  # fmt: skip
MUTATORS = (*STRUCTURE, *BINARY)
# What a file is refused for at once hides what else is wrong with it: these come up less often.
_BLUNT = frozenset({*BINARY, "counts", "version", "lying-length", "lying-type", "bad-text",
                    "rename-key", "duplicate-key", "dimensions", "offset", "bool", "kind",
                    "drop-key", "drop-tensor", "alignment", "tokenizer-type", "other-type",
                    "lengths"})  # fmt: skip
_GENTLE = tuple(name for name in MUTATORS if name not in _BLUNT)
_SLOW_SHARE = 0.01
_GENTLE_SHARE = 0.8


@dataclass(frozen=True)
class Step:
    """One change; `number` decides how exactly."""

    mutator: str
    number: int

    def __str__(self) -> str:
        return f"{self.mutator}={self.number}"


@dataclass(frozen=True)
class Plan:
    """How a file is damaged."""

    seed: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return " ".join([self.seed, *map(str, self.steps)])

    @classmethod
    def parse(cls, text: str) -> Plan:
        """What `str` gave. Raises ValueError."""
        seed, *words = text.split()
        if seed not in corpus():
            raise ValueError(f"there is no file {seed}")
        steps: list[Step] = []
        for word in words:
            mutator, _, number = word.partition("=")
            if mutator not in MUTATORS:
                raise ValueError(f"there is no mutator {mutator}")
            steps.append(Step(mutator, int(number)))
        return cls(seed, tuple(steps))

    def without(self, place: int) -> Plan:
        """One step less."""
        return Plan(self.seed, self.steps[:place] + self.steps[place + 1 :])


def drawn(draw: Random) -> Plan:
    """Any plan of one to four steps, over the corpus of this machine."""
    seeds = corpus()
    slow = draw.random() < _SLOW_SHARE
    names = [name for name, seed in seeds.items() if seed.slow == slow] or list(seeds)
    steps = [
        Step(draw.choice(_GENTLE if draw.random() < _GENTLE_SHARE else MUTATORS),
             draw.getrandbits(32))
        for _ in range(draw.choice((1, 1, 2, 2, 3, 4)))
    ]  # fmt: skip
    return Plan(draw.choice(names), tuple(steps))


def numbered(seed: int, case: int) -> Plan:
    """The plan of one case of a run."""
    return drawn(Random(f"{seed}/{case}"))


@dataclass
class Mutant:
    """The files' bytes, and in words what was done."""

    files: list[bytes]
    said: list[str] = field(default_factory=list[str])

    def write(self, folder: Path) -> Path:
        """Write the files; returns the first one."""
        count = len(self.files)
        names = ["m.gguf"] if count == 1 else [
            f"m-{number + 1:05d}-of-{count:05d}.gguf" for number in range(count)
        ]  # fmt: skip
        for name, data in zip(names, self.files, strict=True):
            (folder / name).write_bytes(data)
        return folder / names[0]


def grown(plan: Plan) -> Mutant:
    """The file that a plan describes: first what changes its structure, then its bytes."""
    seed: Seed = corpus()[plan.seed]
    parts = seed.parts()
    said: list[str] = []
    for step in plan.steps:
        if step.mutator in STRUCTURE:
            draw = Random(step.number)
            number = draw.randrange(len(parts)) if len(parts) > 1 else 0
            change = STRUCTURE[step.mutator]
            said.append(f"{step.mutator}: " + _changed(change, parts[number], draw))
    files = [bytearray(part.encode()) for part in parts]
    for step in plan.steps:
        if step.mutator in BINARY:
            draw = Random(step.number)
            data = files[draw.randrange(len(files)) if len(files) > 1 else 0]
            if data:
                said.append(f"{step.mutator}: " + BINARY[step.mutator](data, draw))
    return Mutant([bytes(data) for data in files], said)


def _changed(change: Structure, part: Gguf, draw: Random) -> str:
    """What the change says; a part that an earlier step left without what it needs stays."""
    try:
        return change(part, draw)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        return f"nothing ({type(error).__name__})"
