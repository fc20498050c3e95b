"""The adapters that are served: by number, by name, and which of them a request gets."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from worker.audit.weights import check_file
from worker.errors import NotFoundError, RequestError, UsageError
from worker.limits import ADAPTERS
from worker.llama.adapters import DIGEST_BYTES, adapter_key, digests_in
from worker.model.adapter import AdapterConfig, load_adapter
from worker.model.config import ModelConfig
from worker.settings import Settings

if TYPE_CHECKING:
    from worker.engine.request import Prompt

MOST_SCALE = 100.0
_OLLAMAS_TAG = ":latest"


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """One of them.

    id      its place on the command line, from 0; of one that is loaded later the next number
    name    that a request gives as its model
    scale   with which it counts when it is named
    counts  whether it counts for requests that choose nothing
    digest  of its file
    """

    id: int
    name: str
    scale: float
    counts: bool
    digest: bytes
    config: AdapterConfig


class AdapterChoice(msgspec.Struct, frozen=True):
    """What a request gets: the key of its prompts, and the model's name in its answer.

    is_named  the request names an adapter
    invocation  token ids where the adapter begins to count (aLoRA); empty: at the first one
    """

    key: bytes
    model: str
    is_named: bool = False
    invocation: tuple[int, ...] = ()

    def of(self, prompt: Prompt) -> Prompt:
        """The prompt with this key: from the last invocation in it on, or without the key where
        there is none."""
        if not self.invocation:
            return msgspec.structs.replace(prompt, key=self.key)
        count, tokens = len(self.invocation), prompt.tokens
        for begin in range(len(tokens) - count, -1, -1):
            if tokens[begin] == self.invocation[0] and (
                tokens[begin : begin + count] == self.invocation
            ):
                return msgspec.structs.replace(prompt, key=self.key, begin=begin)
        return prompt


def load_adapters(config: ModelConfig, settings: Settings) -> tuple[Adapter, ...]:
    """What the settings name, once all of it fits the model.

    Raises UsageError where two have one name, ModelFileError.
    """
    if not settings.lora:
        return ()
    found: list[Adapter] = []
    for place, spec in enumerate(settings.lora):
        adapter = load_adapter(spec.file, config.path)
        counts = spec.name is None and not settings.lora_init_without_apply
        name = spec.name or Path(spec.file).stem
        digest = file_digest(adapter)
        if any(name == each.name or digest == each.digest for each in found):
            raise UsageError(
                f"Two adapters are called {name}, or are one and the same.",
                hint="Give each a name of its own: --lora FILE=NAME.",
            )
        found.append(
            Adapter(
                id=place, name=name, scale=spec.scale, counts=counts, digest=digest, config=adapter
            )
        )
    return tuple(found)


def file_digest(adapter: AdapterConfig) -> bytes:
    """Of all bytes: its states on disk outlive the worker.

    Raises ModelFileError where a number is none: what one sequence leaves in cells as NaN reaches
    all that share them, because attention multiplies what it masks by 0.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    check_file(adapter.files[0].path, digest)
    return digest.digest()


class ServedAdapters:
    """Chooses for each request. For the event loop's thread.

    scales  by number, of requests that choose nothing
    """

    def __init__(
        self, names: Sequence[str], adapters: Iterable[Adapter], *, may_change: bool = False
    ) -> None:
        """names: the model's id, and its others
        may_change: any of them may come or go

        Raises UsageError where an adapter has the name of the model.
        """
        self._names = names
        self._may_change = may_change
        self._by_name = {adapter.name: adapter for adapter in adapters}
        self._next = len(self._by_name)
        if shared := self._by_name.keys() & set(names):
            raise UsageError(
                f"The model and an adapter are both called {shared.pop()}.",
                hint="Give the adapter another name: --lora FILE=NAME.",
            )
        self.scales = {each.id: each.scale for each in self.all if each.counts}
        try:
            self._invocation(self.scales)
        except RequestError as error:
            raise UsageError(error.message, hint="Give it a name: --lora FILE=NAME.") from None

    @property
    def all(self) -> tuple[Adapter, ...]:
        """By their numbers."""
        return tuple(self._by_name.values())

    def check_new(self, name: str, digest: bytes | None = None) -> None:
        """Raise RequestError where the name, or the very file, is here already."""
        if name in self._names or name in self._by_name:
            raise RequestError(
                f"{name} is served already.", param="lora_name", hint="Unload it, or take another."
            )
        same = next((each.name for each in self.all if each.digest == digest), None)
        if same is not None:
            raise RequestError(f"This adapter is served already, as {same}.", param="lora_path")

    def add(self, name: str, config: AdapterConfig, digest: bytes) -> None:
        """Serve one more. Its number was never another one's."""
        self._by_name[name] = Adapter(
            id=self._next, name=name, scale=1.0, counts=False, digest=digest, config=config
        )
        self._next += 1

    def remove(self, name: str) -> Adapter:
        """Serve one no longer. Raises NotFoundError."""
        adapter = self._by_name.pop(name, None)
        if adapter is None:
            names = ", ".join(map(repr, self._by_name)) or "none"
            raise NotFoundError(
                f"There is no adapter {name[:200]!r}.",
                param="lora_name",
                hint=f"There are: {names}.",
            )
        self.scales.pop(adapter.id, None)
        return adapter

    def check_key(self, key: bytes) -> None:
        """Raise NotFoundError where one that a prompt was made ready for is not served any more."""
        if not digests_in(key) <= {each.digest for each in self.all}:
            raise NotFoundError("The adapter was unloaded.", param="model", code="model_not_found")

    def choose(self, model: str | None, scales: Mapping[int, float] | None) -> AdapterChoice:
        """For a request with these fields; `scales` by number, None: it names none.

        Raises NotFoundError for a model or a number that is not here, RequestError for a scale that
        cannot be and where both fields name adapters.
        """
        name = (model or "").removesuffix(_OLLAMAS_TAG)
        # Where there can be no adapters any name is the model's.
        adapter = self.find(name) if name and (self._may_change or self._by_name) else None
        if scales is None:
            if adapter is not None:
                return self._choice({adapter.id: adapter.scale}, adapter.name)
            return self._choice(self.scales)
        if adapter is not None:
            raise RequestError(
                "Both model and lora choose adapters.", param="lora", hint="Leave one of them out."
            )
        self.check(scales)
        return self._choice(scales)

    def check(self, scales: Mapping[int, float]) -> None:
        """Raise NotFoundError or RequestError where these cannot be."""
        for number, scale in scales.items():
            if all(each.id != number for each in self.all):
                numbers = ", ".join(f"{each.id} ({each.name})" for each in self.all) or "none"
                raise NotFoundError(
                    f"There is no adapter {number}.", param="lora", hint=f"There are: {numbers}."
                )
            if not math.isfinite(scale) or abs(scale) > MOST_SCALE:
                raise RequestError(
                    f"The scale of an adapter must be from {-MOST_SCALE:g} to {MOST_SCALE:g}.",
                    param="lora",
                )
        self._invocation(scales)

    def find(self, name: str) -> Adapter | None:
        """The adapter of this name, also as `base:NAME`; None where it is the model itself.

        Raises NotFoundError for anything else.
        """
        if name in self._names:
            return None
        base, _, behind = name.rpartition(":")
        adapter = self._by_name.get(behind if base in self._names else name)
        if adapter is None:
            names = ", ".join(repr(each) for each in (self._names[0], *self._by_name))
            raise NotFoundError(
                f"The model {name[:200]!r} is not served here.",
                hint=f"This worker serves {names}.",
                param="model",
                code="model_not_found",
            )
        return adapter

    def _choice(self, scales: Mapping[int, float], name: str | None = None) -> AdapterChoice:
        if not any(scales.values()):
            return AdapterChoice(b"", name or self._names[0], name is not None)
        key = adapter_key((each.digest, scales.get(each.id, 0.0)) for each in self.all)
        invocation = self._invocation(scales)
        return AdapterChoice(key, name or self._names[0], name is not None, invocation)

    def _invocation(self, scales: Mapping[int, float]) -> tuple[int, ...]:
        """Where that one begins to count; empty: at once. Raises RequestError where one that is
        activated does not count alone, and where too many count."""
        chosen = [each for each in self.all if scales.get(each.id)]
        if len(chosen) > ADAPTERS.most:  # some graphs have no room for more
            raise RequestError(
                f"{len(chosen)} adapters would count at once, {ADAPTERS.most} is the most.",
                param="lora",
            )
        activated = [each for each in chosen if each.config.invocation]
        if activated and len(chosen) > 1:
            raise RequestError(
                f"{activated[0].name} is an activated adapter, which counts alone.",
                param="lora",
                hint="Choose it by its name.",
            )
        return activated[0].config.invocation if activated else ()
