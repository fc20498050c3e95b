"""The mix of encodings for a size: estimated, chosen, written, and measured against the presets."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Collection, Generator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from worker import machine
from worker.bench.fit.choice import smallest
from worker.bench.fit.estimate import (
    ALIGNMENT,
    KINDS,
    Estimate,
    factors_of,
    kind_of,
    kinds_for,
    large_probes,
    probe_groups,
    quantized_part,
    size_in,
)
from worker.bench.fit.jobs import (
    FEWEST_CHUNKS,
    FitJob,
    MatrixJob,
    MatrixMade,
    MixScoreJob,
    ProbeJob,
    RoundingSpeedJob,
    WeighJob,
    ask,
)
from worker.bench.fit.recipe import FORMAT, MixRecipe, digest, write_recipe
from worker.bench.fit.room import fit_memory
from worker.bench.quality.reference import ENTRY_BYTES, MAX_BYTES
from worker.bench.sections import Divergence
from worker.bench.texts import split_texts
from worker.errors import BackendError, DoesNotFitError, ModelFileError, UsageError
from worker.files import check_room, working_folder
from worker.gguf.header import Header, TensorInfo
from worker.gguf.imatrix import read_collected, read_imatrix
from worker.gguf.quant import ENCODINGS, FILE_TYPES
from worker.gguf.reader import align
from worker.gguf.splits import open_header
from worker.llama.quantize.plan import QuantizeOptions, plan
from worker.llama.quantize.target import check_target, quantize
from worker.llama.rounding import NUMBERS
from worker.machine import human_bytes
from worker.model.config import ModelConfig, load_config
from worker.settings import Settings

CHUNK = 512
_CHARACTERS = 4  # of a token, about
_LEAST_MEASURED = 1000  # characters
_EMBEDDING = "token_embd.weight"
_COPIES = 2  # of the size that are on the disk at once: the fit and a preset
_KEY_BYTES = 2048  # of the keys that a file gets beside those of its source
_PRESETS = (
    "IQ2_S",
    "IQ2_M",
    "Q2_K_S",
    "Q2_K",
    "IQ3_XXS",
    "IQ3_XS",
    "Q3_K_S",
    "IQ3_S",
    "IQ3_M",
    "Q3_K_M",
    "Q3_K_L",
    "IQ4_XS",
    "IQ4_NL",
    "Q4_0",
    "Q4_K_S",
    "Q4_1",
    "Q4_K_M",
    "Q5_0",
    "Q5_K_S",
    "Q5_K_M",
    "Q5_1",
    "Q6_K",
    "Q8_0",
)
_RIVALS = 2  # presets that are made and measured
_MIXES = 1 + _RIVALS
_BITS_BELOW, _BITS_ABOVE = 1.3, 0.6  # of a preset's own encoding, beside the bits that are wanted
_ROWS = 128  # of a tensor that are rounded for the estimate
_PROBE_WINDOW = 256
_PROBE_WINDOWS = (8, 48)  # the fewest, and the most where each tensor has a probe of its own
MATRIX_SHARE, PROBE_SHARE, _SCORE_SHARE = 0.4, 0.4, 0.2  # of the time
_LONGER = 1.2  # times the time that was given, from which on it says so
_KINDS_AT_LEAST = 8  # of matrices in a model, each with a probe
_SLOWER = 1.5  # a probe beside the matrix, for a token
_ORIGIN = "fit "  # of a matrix that a fit computed

T = TypeVar("T")


class Said(msgspec.Struct, frozen=True):
    """Something to know about the run."""

    text: str


class At(msgspec.Struct, frozen=True):
    """What is being done, and the share of it that is done."""

    doing: str
    share: float


FitEvents = Generator[Said | At, None, T]


class FitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted.

    nbytes, bits  of the file, or bits per weight; one of the two
    texts         for the matrix, the probes and the measurement, each a part
    imatrix       None: it is computed, and kept beside the target
    seconds       that the matrix, the probes and the measurement should take together
    """

    source: Path
    target: Path
    texts: tuple[str, ...]
    dataset: str
    settings: Settings
    threads: int
    nbytes: int | None = None
    bits: float | None = None
    imatrix: Path | None = None
    chunks: int = 64
    seconds: float = 600.0
    allow_requantize: bool = False
    replace: bool = False
    dry_run: bool = False


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    """A mix and its harm in nats: estimated, and measured with its standard error."""

    name: str
    file_bytes: int
    bits: float
    estimate: float
    kld: float | None = None
    error: float | None = None
    same_top: float | None = None


class FitReport(msgspec.Struct, frozen=True, kw_only=True):
    """better: a preset of at most that size that diverges less; None: the fit was kept"""

    source: str
    target: str
    recipe: MixRecipe
    fit: Mix
    presets: tuple[Mix, ...]
    better: str | None
    kept: bool
    unquantized: tuple[str, ...]
    probes: int
    seconds: float

    @property
    def mix(self) -> dict[str, int]:
        """Encoding -> tensors, the most first."""
        kinds = list(self.recipe.encodings.values())
        return {
            kind: kinds.count(kind) for kind in sorted(set(kinds), key=lambda k: -kinds.count(k))
        }


class BestFit:
    """One run over one model."""

    def __init__(self, options: FitOptions) -> None:
        self._options = options
        self.config: ModelConfig = load_config(options.source, purpose="serve")
        self.header: Header = open_header(options.source)
        kinds = {ENCODINGS[each.type] for each in self.header.tensors}
        self._quantized = sorted(each.name for each in kinds if each.quantized)
        self.is_quantized = bool(self._quantized)
        self._calibration, self._held_out = split_texts(options.texts)
        self._window = min(CHUNK, self.config.context or CHUNK)
        self._token_s = 0.0  # of the matrix
        self._weight_s = 0.0  # of rounding
        self._text_tokens = math.inf  # of the part for matrix and probes, as far as it is known
        self._probe_windows, self._more_probes = _PROBE_WINDOWS[0], 0
        self._plain = self._imatrix = options.source

    def events(self) -> Generator[Said | At | FitReport]:
        """Run it; the report comes last. Raises WorkerError; the target is there whole, or not at
        all."""
        options, begun = self._options, time.monotonic()
        self._check()
        self.check_size(self.bytes_of(options.bits, options.nbytes))
        self._check_memory()
        with working_folder(options.target.parent, ".gguf-worker-") as work:
            self._check_room()
            estimate, imatrix, probes = yield from self.estimate(work)
            wanted = self.bytes_of(options.bits, options.nbytes)
            encodings, presets = yield from self.choice(estimate, imatrix, wanted)
            recipe = self.recipe_of(encodings, imatrix, wanted)
            fit, better = self.mix_of("fit", estimate, encodings), None
            if not options.dry_run:
                fit, presets, better = yield from self._measure(
                    work, recipe, imatrix, fit, list(presets)
                )
        yield FitReport(
            source=str(options.source),
            target=str(options.target),
            recipe=recipe,
            fit=fit,
            presets=tuple(presets),
            better=better,
            kept=better is None and not options.dry_run,
            unquantized=self._rest(estimate),
            probes=probes,
            seconds=time.monotonic() - begun,
        )

    def recipe_of(self, encodings: dict[str, str], imatrix: Path, budget: int) -> MixRecipe:
        return MixRecipe(
            format=FORMAT,
            type=label_of(encodings, self._elements()),
            encodings=encodings,
            imatrix=imatrix.name,
            imatrix_sha256=digest(imatrix),
            dataset=self._options.dataset,
            budget=budget,
        )

    def _check(self) -> None:
        options = self._options
        may_replace = options.replace or options.dry_run
        check_target(self.header, options.target, replace=may_replace)
        if not may_replace:
            self._check_beside()
        if self.config.kind != "decoder" or self.config.only_embeds:
            raise UsageError(
                f"{options.source.name} writes no text, and a fit is measured by the tokens that "
                "follow.",
                hint="Quantize it to a type, and compare types with `worker bench`.",
            )
        if len(self._held_out) < _LEAST_MEASURED and not options.dry_run:
            raise UsageError(
                f"{options.dataset} is too short: two thirds of it choose the fit, and one "
                "measures it.",
                hint="Pass a longer --text, of 5,000 characters or more.",
            )
        if self.is_quantized and not options.allow_requantize:
            raise UsageError(
                f"{options.source.name} is already quantized, and doing it twice loses quality "
                "twice.",
                hint="Start from the F16, BF16 or F32 file, or pass --allow-requantize.",
                code="ALREADY_QUANTIZED",
            )

    def _check_beside(self) -> None:
        """Raises UsageError where a recipe, or a matrix of `worker imatrix`, would be replaced. An
        interrupted fit leaves a matrix of its own."""
        recipe, matrix = recipe_beside(self._options.target), matrix_beside(self._options.target)
        is_lost = self._options.imatrix is None and matrix.exists() and not _is_of_fit(matrix)
        if recipe.exists() or is_lost:
            raise UsageError(
                f"{recipe if recipe.exists() else matrix} exists already, and is written too.",
                hint="Name another DST, or pass --force.",
            )

    def _elements(self) -> dict[str, int]:
        return {tensor.name: tensor.elements for tensor in self.header.tensors}

    def _rest(self, estimate: Estimate) -> tuple[str, ...]:
        """Matrices that stay as they are."""
        return tuple(
            each.name
            for each in self.header.tensors
            if len(each.shape) > 1 and each.name not in estimate.names
        )

    def bytes_of(self, bits: float | None, nbytes: int | None) -> int:
        """Bytes of a file; one of the two is given, and `bits` are per weight."""
        if nbytes is not None:
            return nbytes
        assert bits is not None
        return int(bits * sum(self._elements().values()) / 8) + self._overhead()

    def check_size(self, nbytes: int) -> None:
        """Raises UsageError for a size that no mix has, and for a matrix of another model; before
        anything is computed."""
        tensors, known = self._tensors, self._matrix_names()
        least = self._fixed + sum(
            min(size_in(tensor, kind) for kind in kinds_for(tensor, known))
            for tensor in tensors.values()
        )
        self._check_least(nbytes, least)

    def _check_least(self, wanted: int, least: int) -> None:
        if wanted < least:
            weights = sum(self._elements().values())
            bits = math.ceil(800 * (least - self._overhead()) / weights) / 100
            raise UsageError(
                f"No mix of this model takes {human_bytes(wanted)}: the smallest one takes "
                f"{human_bytes(least)}, {bits:g} bits per weight.",
                hint=f"Allow {bits:g} bits per weight or more.",
                code="TOO_SMALL",
            )

    def _check_room(self) -> None:
        """Raises DiskSpaceError if what is written has no room."""
        options = self._options
        plain = 2 * sum(self._elements().values()) if self.is_quantized else 0
        made = 0
        if not options.dry_run:
            scored = len(self._held_out) // _CHARACTERS // 2
            rows = min(scored * self.config.vocab_size * ENTRY_BYTES, MAX_BYTES)
            made = _COPIES * self.bytes_of(options.bits, options.nbytes) + rows
        if plain + made:
            check_room(options.target.parent, plain + made, options.target.name)

    def _memory(self) -> int:
        """The most that a process of it holds."""
        return fit_memory(
            self.config, self._options.settings, self._window, is_quantized=self.is_quantized
        )

    def _check_memory(self) -> None:
        """Raises DoesNotFitError, before a quantized source is written as F16."""
        need, have = self._memory(), machine.memory().available
        if need > have:
            raise DoesNotFitError(
                f"Finding a mix of {self._options.source.name} needs {human_bytes(need)} of "
                f"memory, {human_bytes(have)} are available.",
                hint="Free some, or quantize to a type, such as Q4_K_M.",
            )

    @functools.cached_property
    def _tensors(self) -> dict[str, TensorInfo]:
        """Tensors that llama.cpp quantizes."""
        how = QuantizeOptions(imatrix=self._options.imatrix, allow_requantize=True, pure=True)
        made = plan(self._options.source, "Q8_0", threads=1, options=how).encodings
        return {each.name: each for each in self.header.tensors if made[each.name] == "Q8_0"}

    @property
    def _fixed(self) -> int:
        """Bytes of a file that no choice changes."""
        return self._overhead() + sum(
            align(tensor.nbytes, ALIGNMENT)
            for tensor in self.header.tensors
            if tensor.name not in self._tensors
        )

    def _matrix_names(self) -> Collection[str]:
        """Tensors that are in the matrix, or will be: all that are multiplied with."""
        given = self._options.imatrix
        if given is None:
            has_output = any(tensor.name == "output.weight" for tensor in self.header.tensors)
            return self._tensors.keys() - ({_EMBEDDING} if has_output else set[str]())
        entries = read_imatrix(given).entries
        if not self._tensors.keys() & entries.keys():
            raise UsageError(
                f"The importance matrix {given.name} has none of this model's tensors.",
                hint="Make one for this model with `worker imatrix`.",
            )
        return entries.keys()

    def _overhead(self) -> int:
        return sum(file.data_offset for file in self.header.files) + _KEY_BYTES

    def mix_of(self, name: str, estimate: Estimate, encodings: Mapping[str, str]) -> Mix:
        weights = sum(
            size_in(tensor, encodings.get(tensor.name, ENCODINGS[tensor.type].name))
            for tensor in self.header.tensors
        )
        return Mix(
            name=name,
            file_bytes=weights + self._overhead(),
            bits=8 * weights / sum(self._elements().values()),
            estimate=estimate.total(encodings),
        )

    def estimate(self, work: Path) -> FitEvents[tuple[Estimate, Path, int]]:
        """What tensors harm, the importance matrix, and how many probes there were."""
        options = self._options
        plain = yield from self._plain_source(work)
        imatrix = yield from self._matrix(plain, work)
        importance = read_imatrix(imatrix)
        for name, experts in importance.rare_experts.items():
            yield Said(f"{name}: experts {', '.join(map(str, experts))} got few tokens")
        if importance.rare_experts:
            yield Said("the errors of these experts hardly count: a broader --text reaches them")
        header = open_header(plain)
        tensors = {each.name: each for each in header.tensors if each.name in self._tensors}
        candidates = {name: kinds_for(each, importance.entries) for name, each in tensors.items()}
        begun = time.monotonic()
        errors = yield from self._job(
            "estimating errors",
            WeighJob(
                path=str(plain),
                imatrix=str(imatrix),
                candidates=candidates,
                rows=_ROWS,
                threads=options.threads,
            ),
            dict[str, dict[str, float]],
        )
        self._weight_s = (time.monotonic() - begun) / _numbers_to_round(candidates, tensors)
        self._plain, self._imatrix = plain, imatrix
        groups = self._groups(candidates)
        more = "" if options.dry_run else f", then the file and {_RIVALS} presets are measured"
        yield Said(
            f"about {minutes(self._expected_s(len(groups)))} more: {len(tensors)} tensors, "
            f"{len(groups)} probes{more}"
        )
        made = yield from self._probe("probing tensors", groups)
        factors = factors_of(groups, made, errors)
        single = large_probes(groups, made, candidates, self._more_probes)
        again = (yield from self._probe("probing encodings", single)) if single else []
        for group, kld in zip(single, again, strict=True):
            ((name, kind),) = group.items()
            errors[name][kind] = max(0.0, kld) / factors[name]
        return Estimate(tensors, errors, factors, self._fixed), imatrix, len(groups) + len(again)

    def choice(
        self, estimate: Estimate, imatrix: Path, nbytes: int
    ) -> FitEvents[tuple[dict[str, str], list[Mix]]]:
        """The encodings for so many bytes: the mix with the least estimate, or a preset that
        diverges less from the source on the text of the probes; and the presets. Raises
        UsageError for a size that no mix has."""
        self._check_least(nbytes, estimate.fixed + smallest(estimate.options))
        best = estimate.best(nbytes)
        bits = self.mix_of("fit", estimate, best).bits
        presets = yield from self._presets(estimate, imatrix, nbytes, bits)
        rivals = [
            {name: encodings[name] for name in estimate.names} for _, encodings in presets[:_RIVALS]
        ]
        mixes = [best, *rivals]
        made = yield from self._probe("comparing mixes", tuple(map(quantized_part, mixes)))
        return mixes[int(np.argmin(made))], [mix for mix, _ in presets]

    def _plain_source(self, work: Path) -> FitEvents[Path]:
        """The source, or what it is in F16: probes exchange its weights in memory."""
        if not self.is_quantized:
            return self._options.source
        yield Said(
            f"the source is quantized ({', '.join(self._quantized)}): all divergence is measured "
            "from it, so what it lost already stays unseen"
        )
        path = work / "plain.gguf"
        again = QuantizeOptions(allow_requantize=True)
        quantize(self._options.source, path, "F16", threads=self._options.threads, options=again)
        return path

    def _matrix(self, plain: Path, work: Path) -> FitEvents[Path]:
        """The matrix that was given, or one of our own; the speed is measured with it."""
        options = self._options
        given, target = options.imatrix, matrix_beside(options.target)
        if given is not None or options.dry_run:
            target = work / "imatrix.gguf"
        self._weight_s = yield from self._job(
            "measuring speed", RoundingSpeedJob(threads=options.threads), float
        )
        job = MatrixJob(
            path=str(plain),
            settings=options.settings,
            texts=self._calibration,
            dataset=options.dataset,
            target=str(target),
            origin=f"{_ORIGIN}{time.time_ns()}",
            chunk=self._window,
            chunks=1 if given else options.chunks,
            with_output=True,
            seconds=options.seconds * MATRIX_SHARE,
        )
        made = yield from self._with_forecast(self._job("computing importance", job, MatrixMade))
        self._token_s = made.seconds / (made.chunks * made.chunk)
        return given or target

    def _with_forecast(self, matrix: FitEvents[MatrixMade]) -> FitEvents[MatrixMade]:
        """Pass on the events of the matrix, and behind its first chunk what the run will take."""
        begun = 0.0
        with contextlib.closing(matrix):
            while True:
                try:
                    event = next(matrix)
                except StopIteration as end:
                    return end.value
                yield event
                share = event.share if isinstance(event, At) else 0.0
                if not share:
                    begun = time.monotonic()
                elif not self._token_s:
                    self._token_s = (time.monotonic() - begun) / self._window
                    chunks = round(1 / share)
                    if self._options.imatrix is None and chunks < self._options.chunks:
                        self._text_tokens = chunks * self._window
                    yield Said(self._forecast(chunks))

    def _forecast(self, chunks: int) -> str:
        """What the run will take, if the text has so many chunks."""
        options, known = self._options, self._matrix_names()
        candidates = {name: kinds_for(each, known) for name, each in self._tensors.items()}
        matrix = self._token_s * self._window * chunks
        expected = min(matrix, max(options.seconds * MATRIX_SHARE, matrix / chunks))
        expected += self._weight_s * _numbers_to_round(candidates, self._tensors)
        expected += self._expected_s(len(self._groups(candidates)))
        told = f"about {minutes(expected)}"
        if expected > _LONGER * options.seconds:
            told += f" instead of {minutes(options.seconds)}, which is the least for this model"
        return f"{told}, and {human_bytes(self._memory())} of memory at most"

    def _groups(self, candidates: Mapping[str, tuple[str, ...]]) -> tuple[dict[str, str], ...]:
        """Tensors that share a factor: of one kind, in neighbouring layers, as many groups as
        there is time for."""
        weights, largest = self._weights()
        room = self._options.seconds * PROBE_SHARE - self._weight_s * weights
        affordable = int(room / self._probe_s(_PROBE_WINDOWS[0])) - _MIXES
        bands = (affordable - len(KINDS)) // len({kind_of(name) for name in candidates})
        groups = probe_groups(candidates, max(1, bands))
        left = max(0, affordable - len(groups)) * self._probe_s(_PROBE_WINDOWS[0])
        single = self._probe_s(_PROBE_WINDOWS[0]) + self._weight_s * largest
        self._more_probes = int(left / single)
        windows = int(room / self._probe_s(len(groups) + len(KINDS) + _MIXES))
        self._probe_windows = min(max(windows, _PROBE_WINDOWS[0]), _PROBE_WINDOWS[1])
        return groups

    def _probe_s(self, windows: int) -> float:
        tokens = min(_PROBE_WINDOW * windows, self._text_tokens)
        return self._token_s * _SLOWER * tokens

    def _weights(self) -> tuple[int, int]:
        """Weights that are quantized: of all tensors, and of the largest."""
        elements = [tensor.elements for tensor in self._tensors.values()]
        return sum(elements), max(elements)

    def _expected_s(self, probes: int) -> float:
        """Seconds from the probes on."""
        weights, largest = self._weights()
        more = min(self._more_probes, len(KINDS))
        cost = self._probe_s(self._probe_windows) * (1 + probes + more + _MIXES)
        cost += self._weight_s * (weights * (1 + _MIXES) + largest * more)
        if self._options.dry_run:
            return cost
        cost += self._weight_s * weights * _MIXES
        tokens = min(self._window * self._windows(), self._text_tokens / 2)
        return cost + self._token_s * _SLOWER * tokens * (1 + _MIXES)

    def _windows(self) -> int:
        """Windows of the held-out text that there is time for."""
        cost = self._token_s * _SLOWER * self._window * (1 + _MIXES)
        return max(4, int(self._options.seconds * _SCORE_SHARE / cost))

    def _presets(
        self, estimate: Estimate, imatrix: Path, nbytes: int, bits: float
    ) -> FitEvents[list[tuple[Mix, dict[str, str]]]]:
        """Presets of at most that size with their encodings, the best by the estimate first."""
        found: list[tuple[Mix, dict[str, str]]] = []
        near = [
            name for name in _PRESETS if bits - _BITS_BELOW <= _bits_of(name) <= bits + _BITS_ABOVE
        ]
        for index, name in enumerate(near):
            yield At("looking at presets", index / len(near))
            options = QuantizeOptions(imatrix=imatrix, allow_requantize=True)
            with contextlib.suppress(BackendError):
                made = plan(self._options.source, name, threads=1, options=options)
                mix = self.mix_of(name, estimate, made.encodings)
                if mix.file_bytes <= nbytes and not made.needs_imatrix:
                    found.append((mix, made.encodings))
        found.sort(key=lambda each: _or_infinite(each[0].estimate))
        return found

    def _measure(
        self, work: Path, recipe: MixRecipe, imatrix: Path, fit: Mix, presets: list[Mix]
    ) -> FitEvents[tuple[Mix, list[Mix], str | None]]:
        """Write the fit and measure it beside the best presets; it gets its name if it is not
        worse."""
        options, reference = self._options, work / "reference"
        yield from self.score("measuring the source", options.source, reference, writes=True)
        partial = work / "fit.gguf"
        again = recipe.options(imatrix)
        yield At("writing the fit", 0.0)
        quantize(options.source, partial, recipe.type, threads=options.threads, options=again)
        divergence = yield from self.score("measuring the fit", partial, reference)
        fit = _with_measure(fit, divergence, partial.stat().st_size)
        for place, preset in enumerate(presets[:_RIVALS]):
            path = work / f"{preset.name}.gguf"
            plain = QuantizeOptions(imatrix=imatrix, allow_requantize=True)
            yield At(f"writing {preset.name}", 0.0)
            quantize(options.source, path, preset.name, threads=options.threads, options=plain)
            found = yield from self.score(f"measuring {preset.name}", path, reference)
            presets[place] = _with_measure(preset, found, path.stat().st_size)
            path.unlink()
        rivals = [mix for mix in presets if mix.kld is not None]
        best = min(rivals, key=lambda mix: mix.kld or 0.0, default=None)
        if best is not None and (best.kld or 0.0) < (fit.kld or 0.0):
            return fit, presets, best.name
        write_recipe(recipe_beside(options.target), recipe)
        partial.replace(options.target)
        return fit, presets, None

    def score(
        self, doing: str, path: Path, place: Path, *, writes: bool = False
    ) -> FitEvents[Divergence]:
        job = MixScoreJob(
            path=str(path),
            settings=self._options.settings,
            text=self._held_out,
            place=str(place),
            writes=writes,
            window=self._window,
            windows=self._windows(),
        )
        return (yield from self._job(doing, job, Divergence))

    def _probe(self, doing: str, groups: tuple[dict[str, str], ...]) -> FitEvents[list[float]]:
        job = ProbeJob(
            path=str(self._plain),
            settings=self._options.settings,
            imatrix=str(self._imatrix),
            text="\n".join(self._calibration),
            groups=groups,
            window=min(_PROBE_WINDOW, self._window),
            windows=self._probe_windows,
            threads=self._options.threads,
        )
        return self._job(doing, job, list[float])

    def _job(self, doing: str, job: FitJob, kind: type[T]) -> FitEvents[T]:
        shares = ask(job, kind)
        yield At(doing, 0.0)
        with contextlib.closing(shares):
            while True:
                try:
                    yield At(doing, next(shares))
                except StopIteration as end:
                    return end.value


def _numbers_to_round(
    candidates: Mapping[str, tuple[str, ...]], tensors: Mapping[str, TensorInfo]
) -> int:
    """Numbers that are rounded for the errors of all tensors."""
    rows = {name: max((_ROWS, *each.shape[2:])) for name, each in tensors.items()}  # of each expert
    return sum(
        min(tensors[name].elements, rows[name] * tensors[name].shape[0]) * len(kinds)
        for name, kinds in candidates.items()
    )


def least_s(token_s: float, text_tokens: int) -> tuple[float, float]:
    """The fewest seconds of computing for what tensors harm, and for a mix beside its rivals; by
    the seconds of a token and the text's tokens."""
    windows = min(_PROBE_WINDOW * _PROBE_WINDOWS[0], text_tokens) * _SLOWER
    matrix = min(FEWEST_CHUNKS * CHUNK, text_tokens)
    return token_s * (matrix + windows * (1 + _KINDS_AT_LEAST)), token_s * windows * (1 + _MIXES)


def _bits_of(preset: str) -> float:
    base = next(base for label, base in FILE_TYPES.values() if label == preset)
    return ENCODINGS[NUMBERS[base]].bits


def label_of(encodings: Mapping[str, str], elements: Mapping[str, int]) -> str:
    """The level whose own encoding most weights have; `_M` of several."""
    sums: dict[str, int] = {}
    for name, kind in encodings.items():
        sums[kind] = sums.get(kind, 0) + elements[name]
    for kind in sorted(sums, key=lambda kind: -sums[kind]):
        labels = [label for label, base in FILE_TYPES.values() if base == kind]
        if labels and ENCODINGS[NUMBERS[kind]].quantized:
            return next((label for label in labels if label.endswith("_M")), labels[0])
    return "Q8_0"


def _or_infinite(estimate: float) -> float:
    return math.inf if math.isnan(estimate) else estimate


def _with_measure(mix: Mix, found: Divergence, nbytes: int) -> Mix:
    error = found.kld_mean_error_windows or found.kld_mean_error
    return msgspec.structs.replace(
        mix, kld=found.kld_mean, error=error, same_top=found.same_top, file_bytes=nbytes
    )


def matrix_beside(target: Path) -> Path:
    """Where the matrix that was computed for a file is kept."""
    return target.with_name(f"{target.stem}.imatrix.gguf")


def _is_of_fit(matrix: Path) -> bool:
    try:
        return read_collected(matrix).origin.startswith(_ORIGIN)
    except ModelFileError:
        return False


def recipe_beside(target: Path) -> Path:
    """Where the recipe of a file is kept."""
    return target.with_name(f"{target.stem}.recipe.json")


def minutes(seconds: float) -> str:
    """`75 s`, `5 min`, `1.5 h`: a time for people."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
