"""What intake knows of the model that is served: facts and small faces, not the model itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import msgspec

from worker.budget import Budget
from worker.engine.request import Medium, Prompt
from worker.engine.sampling import SamplingParams
from worker.grammar.constraint import Constraint
from worker.grammar.schema import Schema
from worker.model.calibration import DecisionCalibration
from worker.model.config import ModelConfig
from worker.settings import Settings


class Vocabulary(Protocol):
    """Text to tokens and back, see `llama/vocab.py`. Several threads may use it at the same time.

    infill        tokens before a prefix, a suffix and the middle
    infill_files  tokens before a repository's name and a file's
    pieces        token id -> the bytes that a client sees; control tokens are empty
    spelled       the same, control tokens spelt out
    """

    size: int
    bos: int | None
    eos: int | None
    sep: int | None
    bos_name: str
    eos_name: str
    adds_bos: bool
    adds_eos: bool
    adds_sep: bool
    infill: tuple[int | None, ...]
    infill_files: tuple[int | None, int | None]
    end_tokens: frozenset[int]

    @property
    def pieces(self) -> Sequence[bytes]: ...
    @property
    def spelled(self) -> Sequence[bytes]: ...
    @cached_property
    def controls(self) -> dict[str, int]: ...
    @cached_property
    def ends_of_texts(self) -> Sequence[int]: ...
    @cached_property
    def has_infill_sampler(self) -> bool: ...
    def name(self, token: int) -> str: ...
    def tokenize(
        self,
        text: str,
        *,
        add_special: bool,
        parse_special: bool,
        param: str = "prompt",
        budget: Budget | None = None,
    ) -> list[int]: ...


class GuideMaker(Protocol):
    """Compiles constraints, see `llama/guides/`."""

    def prepare(self, constraint: Constraint, budget: Budget) -> None: ...
    def loosener(self) -> Callable[[Schema | bool, str], str]: ...


class TextEmbedder(Protocol):
    """How vectors are made; max_length: tokens of a text"""

    pooling: str
    max_length: int


class Perception(Protocol):
    """What the projector takes; kinds: image, audio"""

    @property
    def kinds(self) -> tuple[str, ...]: ...


class AddressReader(Protocol):
    """Reads what one request names by address, see `lifecycle/addresses.py`."""

    def allows(self, address: str) -> bool: ...
    def knows(self, address: str) -> bool: ...
    def read(self, address: str) -> bytes: ...


class MediumReader(Protocol):
    """Makes vectors of images and audio, see `lifecycle/media.py`; it blocks."""

    def addresses(self) -> AddressReader: ...
    @property
    def ready(self) -> Perception: ...
    def digest(self, data: bytes) -> bytes: ...
    def knows(self, digest: bytes) -> bool: ...
    def count(self, digest: bytes, data: bytes, kind: str) -> int: ...
    def read(
        self, digest: bytes, data: bytes, kind: str
    ) -> tuple[Medium | tuple[int, ...], ...]: ...


class NamedAdapter(Protocol):
    """One of them."""

    @property
    def name(self) -> str: ...


class ChosenAdapters(Protocol):
    """What a request gets.

    key    of its prompts; empty: no adapter counts
    model  the name that its answer gives the model
    """

    @property
    def key(self) -> bytes: ...
    @property
    def model(self) -> str: ...
    @property
    def is_named(self) -> bool: ...
    def of(self, prompt: Prompt) -> Prompt: ...


class AdapterTable(Protocol):
    """The adapters that are served now, see `lifecycle/adapters.py`."""

    @property
    def all(self) -> Sequence[NamedAdapter]: ...
    def find(self, name: str) -> NamedAdapter | None: ...
    def choose(self, model: str | None, scales: Mapping[int, float] | None) -> ChosenAdapters: ...
    def check_key(self, key: bytes) -> None: ...


class SlotTable(Protocol):
    """What requests said that named a slot, see `lifecycle/slots.py`."""

    def check(self, number: int, param: str = "id_slot") -> None: ...
    def note(self, number: int, key: bytes, tokens: tuple[int, ...]) -> None: ...


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a request is checked against and made ready with.

    model_id      the id under which clients see the model
    settings      what the process was asked to do
    sampling      of a request that does not say otherwise
    capabilities  what a manager may send it: text-gen, vision, audio, embedding, rerank
    max_length    tokens of the longest sequence
    needs_rest    its state cannot be cut after any token
    embedder      None: nobody asked for vectors
    media         None: the model reads text only
    calibration   of decisions, measured for this file; None: there is none
    """

    model_id: str
    config: ModelConfig
    settings: Settings
    sampling: SamplingParams
    capabilities: tuple[str, ...]
    max_length: int
    needs_rest: bool
    vocab: Vocabulary
    guides: GuideMaker
    embedder: TextEmbedder | None
    media: MediumReader | None
    adapters: AdapterTable
    slots: SlotTable
    calibration: DecisionCalibration | None = None

    @property
    def writes(self) -> bool:
        """Whether it continues texts."""
        return "text-gen" in self.capabilities

    @property
    def perceives(self) -> tuple[str, ...]:
        """Which media it takes: vision, audio."""
        return tuple(each for each in ("vision", "audio") if each in self.capabilities)
