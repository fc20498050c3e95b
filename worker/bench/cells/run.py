"""A run of `worker bench --cells`: each file with each type of cells."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from worker.bench.cells.scores import CELLS, FORMAT, CellsLevel, CellsReport, recommend
from worker.bench.plan import BenchPlan, Level
from worker.bench.quality.answers import compare_choices
from worker.bench.quality.questions import questions_of
from worker.bench.report.documents import json_line, markdown_table, write_documents
from worker.bench.run.cache import BenchCache
from worker.bench.run.level import File, LevelRunner, begin
from worker.bench.run.runner import Event, Events, Note, Runner
from worker.bench.sizes import EFFORTS, Sizes
from worker.bench.stages import StageJob
from worker.errors import BackendError, UsageError, WorkerError

CONTEXT = 2048
SCORED = 512  # the last tokens of a window
_WINDOWS = {"quick": 2, "normal": 6, "thorough": 24}
_EXPECTED_S = 60.0


class CellsRun:
    """cells: type of keys and type of values of each; the first is the reference"""

    def __init__(
        self, plan: BenchPlan, cache: BenchCache, cells: tuple[tuple[str, str], ...]
    ) -> None:
        self._plan, self._cache, self._cells = plan, cache, cells
        self._runner = Runner(cache, fresh=plan.fresh)

    def events(self) -> Generator[Event | CellsReport]:
        """Run it; the last report is whole. Raises WorkerError where it cannot go on at all."""
        with self._cache.lock():
            try:
                yield from self._run()
            finally:
                self._cache.make_room(0)

    def _run(self) -> Generator[Event | CellsReport]:
        plan, runner = self._plan, self._runner
        machine, source = yield from begin(runner, plan)
        makers, found = LevelRunner(runner, plan, machine), list[CellsLevel]()
        names = [name_of(*types) for types in self._cells]
        for level in plan.levels:
            for name in names:
                runner.agenda.expect(f"{level.name} {name}", CELLS.name, _EXPECTED_S)
        model = ""
        for level in plan.levels:
            try:
                file = yield from makers.file(level, source)
            except (WorkerError, OSError) as failure:
                yield Note(text=f"{level.name} is left out: {failure}")
                continue
            model = model or file.config.name or Path(file.path).stem
            context = min(CONTEXT, file.config.context or CONTEXT)
            with tempfile.TemporaryDirectory(dir=self._cache.folder) as rows:
                for types in self._cells:
                    made = yield from self._measure(level, file, types, Path(rows), found)
                    found.append(made)
                    yield self._report(found, model, context)
        if not any(each.scores for each in found):
            reasons = "; ".join(each.error or "" for each in found)
            raise BackendError(f"Nothing could be measured: {reasons}", code="NO_REFERENCE")

    def _measure(
        self,
        level: Level,
        file: File,
        types: tuple[str, str],
        rows: Path,
        before: list[CellsLevel],
    ) -> Events[CellsLevel]:
        plan = self._plan
        settings = msgspec.structs.replace(
            plan.settings, cache_type_k=types[0], cache_type_v=types[1]
        )
        name = name_of(*types)
        reference = next((e for e in before if e.file == level.name and e.is_reference), None)
        made = CellsLevel(file=level.name, cells=name)
        job = StageJob(
            stage=CELLS.name, plan=plan, settings=settings, sizes=sizes_of(plan, file),
            level=msgspec.structs.replace(level, name=f"{level.name} {name}"), path=file.path,
            place=str(rows), writes=reference is None,
        )  # fmt: skip
        try:
            scores = yield from self._runner.run(CELLS, job)
        except BackendError as failure:
            if failure.code == UsageError.default_code and reference is None:
                raise UsageError(str(failure)) from None
            return msgspec.structs.replace(made, error=str(failure))
        made = msgspec.structs.replace(made, bytes_per_cell=scores.bytes_per_cell, scores=scores)
        if reference is None:
            return msgspec.structs.replace(made, is_reference=True)
        assert reference.scores is not None
        questions = questions_of(plan, job.sizes.questions)
        choices = compare_choices(questions, reference.scores.choices, scores.choices)
        return msgspec.structs.replace(made, flips=choices.flips)

    def _report(self, levels: list[CellsLevel], model: str, context: int) -> CellsReport:
        return CellsReport(
            format=FORMAT,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            model=model,
            context=context,
            scored=num_scored(context),
            levels=tuple(levels),
            recommended=recommend(levels),
        )


def sizes_of(plan: BenchPlan, file: File) -> Sizes:
    """Long windows, as many as the effort has."""
    return msgspec.structs.replace(
        EFFORTS[plan.effort][0],
        window=min(CONTEXT, file.config.context or CONTEXT),
        windows=_WINDOWS[plan.effort],
    )


def num_scored(context: int) -> int:
    """Tokens of a window that are compared."""
    return min(SCORED, context // 2)


def name_of(keys: str, values: str) -> str:
    """As it is written on the command line."""
    return keys if keys == values else f"k:{keys}/v:{values}"


def write_cells(report: CellsReport, folder: Path) -> list[Path]:
    """Write report.json and .md. Raises DiskSpaceError."""
    from worker.bench.cells.scores import HEADINGS, rows_of, words_of

    def page(report: CellsReport) -> str:
        told = "\n\n".join(words_of(report))
        return f"# {report.model}\n\n{markdown_table(HEADINGS, rows_of(report))}\n{told}\n"

    return write_documents(report, {"json": json_line, "md": page}, folder)
