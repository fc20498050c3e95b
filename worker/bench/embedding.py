"""Levels of a model that makes vectors: how near each level's are to the reference's, how fast."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np

from worker.bench.figures import Figure, Floats
from worker.bench.plan import BenchPlan, Corpus, Level
from worker.bench.report.documents import json_line, markdown_table, write_documents
from worker.bench.run.cache import BenchCache
from worker.bench.run.level import File, LevelRunner, begin
from worker.bench.run.runner import Event, Events, Note, Runner
from worker.bench.sections import Machine, VectorSpeed
from worker.bench.sizes import EFFORTS, Effort
from worker.bench.stages import VECTORS, StageJob
from worker.errors import BackendError, UsageError, WorkerError, quantity
from worker.log import harmless
from worker.machine import human_bytes

FORMAT = "worker-bench-vectors-1"
HEADINGS = ("level", "size", "bits", "texts/s", "peak", "cosine", "least", "top 10", "Kendall")
NEIGHBOURS = 10
RULE = (
    f"A level qualifies if {NEIGHBOURS} nearest neighbors are the reference's in 95 of 100 "
    "cases. Of these the fastest, and all within 3 % or its error; of these the smallest."
)
_LEAST_OVERLAP, _SAME_SPEED = 0.95, 0.03
_EXPECTED_S = 10.0  # of a level, until the pace is known
_MOST_QUERIES = 200  # texts whose order of all others is compared


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Vectors beside the reference's, of the same texts.

    cosine, least  of a text's two vectors: the mean, and the smallest
    neighbours     share of a text's nearest ones that are the reference's too
    kendall        tau-a between the two orders of all other texts by their likeness, the mean
    """

    cosine: float
    least: float
    neighbours: float
    kendall: float


class VectorLevel(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one level; `error` says why something is missing."""

    quant: str
    is_reference: bool
    file: str
    size_bytes: int
    bpw: float
    speed: VectorSpeed | None = None
    agreement: Agreement | None = None
    error: str | None = None


class VectorReport(msgspec.Struct, frozen=True, kw_only=True):
    """A run. `recommend`: the level to take, None where no two were compared."""

    format: str
    created: str
    model: str
    reference: str
    effort: Effort
    corpus: Corpus
    levels: tuple[VectorLevel, ...]
    recommended: str | None
    rule: str
    machine: Machine
    notes: tuple[str, ...]


def agreement(found: Floats, reference: Floats) -> Agreement:
    """Of vectors of length 1 of the same texts, [texts, width]; three texts at least."""
    cosines = (found * reference).sum(axis=1)
    queries = np.linspace(0, len(found) - 1, min(len(found), _MOST_QUERIES)).astype(int)
    overlaps: list[float] = []
    orders: list[float] = []
    for query in queries:
        ours, theirs = (
            np.delete(vectors @ vectors[query], query) for vectors in (found, reference)
        )
        most = min(NEIGHBOURS, len(ours) - 1)
        nearest, wanted = (np.argsort(-likeness)[:most] for likeness in (ours, theirs))
        overlaps.append(len(np.intersect1d(nearest, wanted)) / most)
        orders.append(_tau(ours, theirs))
    return Agreement(
        cosine=float(cosines.mean()),
        least=float(cosines.min()),
        neighbours=float(np.mean(overlaps)),
        kendall=float(np.mean(orders)),
    )


def _tau(ours: Floats, theirs: Floats) -> float:
    """Kendall's tau-a (Biometrika 30, 1938): pairs in one order less those in another, of all."""
    first, second = np.triu_indices(len(ours), 1)
    signs = np.sign(ours[first] - ours[second]) * np.sign(theirs[first] - theirs[second])
    return float(signs.mean())


def recommend(levels: Sequence[VectorLevel]) -> str | None:
    """The level that the rule chooses; None where nothing is compared or nothing near enough."""
    speeds = {
        level.quant: level.speed.texts_per_s
        for level in levels
        if level.speed and level.agreement and level.agreement.neighbours >= _LEAST_OVERLAP
    }
    reference = next((level for level in levels if level.is_reference), None)
    if not speeds or reference is None or reference.speed is None:
        return None
    speeds[reference.quant] = reference.speed.texts_per_s
    fastest = max(speeds.values(), key=lambda speed: speed.mean)
    sizes = {level.quant: level.size_bytes for level in levels}
    near = [name for name, speed in speeds.items() if _is_as_fast(speed, fastest)]
    return min(near, key=lambda name: sizes[name])


def _is_as_fast(speed: Figure, fastest: Figure) -> bool:
    gap = fastest.mean - speed.mean
    return gap <= max(_SAME_SPEED * fastest.mean, 2 * np.hypot(fastest.error, speed.error))


def rows_of(report: VectorReport) -> list[tuple[str, ...]]:
    """The table's rows as texts, in the order of HEADINGS."""
    return [_row(report, level) for level in report.levels]


def words_of(report: VectorReport) -> list[str]:
    """What the figures are of, and the level to take with its rule, a paragraph each."""
    first = next((level.speed for level in report.levels if level.speed), None)
    found: list[str] = []
    if first is not None:
        found.append(
            f"{quantity(first.texts, 'line')} of {report.corpus.name}, "
            f"{quantity(first.tokens, 'token')}. Cosine to the "
            f"same text's vector of {report.reference}; top {NEIGHBOURS}: nearest texts in common."
        )
    found += [f"{each.quant}: {each.error}" for each in report.levels if each.error]
    if report.recommended:
        found.append(f"Take {report.recommended} on this machine. {report.rule}")
    return found


def write_vectors(report: VectorReport, folder: Path) -> list[Path]:
    """Write report.json and .md. Raises DiskSpaceError."""
    return write_documents(report, {"json": json_line, "md": as_markdown}, folder)


def as_markdown(report: VectorReport) -> str:
    table = markdown_table(HEADINGS, rows_of(report))
    return "\n".join(
        [f"# {harmless(report.model)}\n", table, *(f"{each}\n" for each in words_of(report))]
    )


def _row(report: VectorReport, level: VectorLevel) -> tuple[str, ...]:
    name = ("→ " if level.quant == report.recommended else "") + level.quant
    speed, found = level.speed, level.agreement
    rate, peak = "–", "–"
    if speed is not None:
        mean, error = speed.texts_per_s.mean, speed.texts_per_s.error
        rate = f"{mean:,.1f}" + (f" ±{error / mean:.0%}" if error else "")
        peak = human_bytes(speed.memory.peak_rss) if speed.memory else "–"
    compared = ("–",) * 4
    if level.is_reference:
        compared = ("reference", "", "", "")
    elif found is not None:
        compared = (f"{found.cosine:.5f}", f"{found.least:.5f}", f"{found.neighbours:.1%}",
                    f"{found.kendall:.3f}")  # fmt: skip
    size = human_bytes(level.size_bytes)
    return (name, size, f"{level.bpw:.2f}", rate, peak, *compared)


class EmbeddingBench:
    """One run of a plan of a model that makes vectors. The corpus's lines are its texts."""

    def __init__(self, plan: BenchPlan, cache: BenchCache) -> None:
        self._plan, self._cache = plan, cache
        self._runner = Runner(cache, fresh=plan.fresh)
        self._notes: list[str] = []

    def events(self) -> Generator[Event | VectorReport]:
        """Run it; the last report is whole. Raises WorkerError where it cannot go on at all."""
        with self._cache.lock(), tempfile.TemporaryDirectory() as folder:
            try:
                yield from self._run(Path(folder))
            finally:
                self._cache.make_room(0)

    def _run(self, folder: Path) -> Generator[Event | VectorReport]:
        plan, runner = self._plan, self._runner
        machine, source = yield from begin(runner, plan)
        makers = LevelRunner(runner, plan, machine)
        for level in plan.levels:
            runner.agenda.expect(level.name, VECTORS.name, _EXPECTED_S)
        reference: Floats | None = None
        found: list[VectorLevel] = []
        name = ""
        for number, level in enumerate(plan.levels):
            try:
                file = yield from makers.file(level, source)
            except (WorkerError, OSError) as failure:
                if number == 0:
                    raise
                self._notes.append(f"{level.name} is left out: {failure}")
                runner.agenda.drop(level.name)
                yield Note(text=self._notes[-1])
                continue
            name = name or file.config.name or Path(file.path).stem
            place = folder / f"{number}.npy"
            made, vectors = yield from self._measure(level, file, place, number == 0)
            if number == 0:
                if vectors is None:
                    raise BackendError(made.error or "", code="NO_REFERENCE")
                reference = vectors
            elif vectors is not None and reference is not None:
                made = msgspec.structs.replace(made, agreement=agreement(vectors, reference))
            found.append(made)
            yield self._report(found, name, machine)

    def _measure(
        self, level: Level, file: File, place: Path, is_reference: bool
    ) -> Events[tuple[VectorLevel, Floats | None]]:
        report = VectorLevel(
            quant=level.name,
            is_reference=is_reference,
            file=file.path,
            size_bytes=sum(part.size for part in file.config.files),
            bpw=file.config.bits_per_weight,
        )
        plan = self._plan
        job = StageJob(
            stage=VECTORS.name, plan=plan, settings=plan.settings, sizes=EFFORTS[plan.effort][0],
            level=level, path=file.path, place=str(place),
        )  # fmt: skip
        try:
            speed = yield from self._runner.run(VECTORS, job)
        except BackendError as failure:
            if failure.code == UsageError.default_code:
                raise UsageError(str(failure)) from None
            return msgspec.structs.replace(report, error=str(failure)), None
        return msgspec.structs.replace(report, speed=speed), np.load(place).astype(np.float64)

    def _report(self, levels: Sequence[VectorLevel], name: str, machine: Machine) -> VectorReport:
        assert self._plan.corpus is not None
        return VectorReport(
            format=FORMAT,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            model=name,
            reference=levels[0].quant,
            effort=self._plan.effort,
            corpus=self._plan.corpus,
            levels=tuple(levels),
            recommended=recommend(levels),
            rule=RULE,
            machine=machine,
            notes=tuple(self._notes),
        )
