"""Two reports side by side: what changed from one to the other, and whether it is real."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import msgspec

from worker.bench.figures import Difference, Figure, difference, paired_difference
from worker.bench.report import FORMAT, BenchReport, LevelReport
from worker.bench.report.columns import Column, tables
from worker.bench.report.verdict import MATERIAL_SPEED
from worker.bench.sections import Quality
from worker.errors import UsageError

# Resident memory differs by this share from start to start: heaps, threads, what is mapped.
_MATERIAL_MEMORY = 0.02
_LARGEST = 1e30


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one level, before and after.

    figure   the column's title
    margin   half of the 95 % interval around `after - before`, or what runs differ by anyway if
             that is more; None: a figure without an error
    is_real  the change is larger than the margin
    note     why it cannot be judged
    """

    quant: str
    figure: str
    unit: str
    before: float
    after: float
    margin: float | None
    is_real: bool
    note: str = ""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """All figures that both reports have, and what differs in how they were taken."""

    conditions: tuple[str, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    changes: tuple[Change, ...]
    recommended: tuple[str | None, str | None]


class _Format(msgspec.Struct):
    format: Annotated[int, msgspec.Meta(ge=0, lt=1000)]


def read_report(path: Path) -> BenchReport:
    """A report.json. Raises UsageError where it is none."""
    try:
        raw = path.read_bytes()
        found = msgspec.json.decode(raw, type=_Format).format
        if found != FORMAT:
            raise UsageError(
                f"{path} has format {found}, and {FORMAT} is read here.",
                hint="Measure again with this version.",
            )
        report = msgspec.json.decode(raw, type=BenchReport)
        _check_numbers(msgspec.json.decode(raw))
        if any(level.quality and level.quality.ppl <= 0 for level in report.levels):
            raise ValueError("a perplexity is not above 0")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.",
            hint="Name a report.json that `worker bench --out DIR` has written.",
        ) from None
    except (ValueError, RecursionError) as error:  # msgspec's own are ValueErrors
        raise UsageError(
            f"{path} is no report of `worker bench`: {error}.", hint="Give a report.json."
        ) from None
    return report


def _check_numbers(value: Any) -> None:
    """Raise ValueError for a number whose square no float can hold; nothing measures such one."""
    if isinstance(value, dict):
        value = list(cast("dict[str, Any]", value).values())
    if isinstance(value, list):
        for part in cast("list[Any]", value):
            _check_numbers(part)
    elif isinstance(value, int | float) and abs(value) > _LARGEST:
        raise ValueError("it holds a number that was never measured")


def changes_between(before: BenchReport, after: BenchReport) -> Changes:
    """Every figure of every level that is in both."""
    ours = {level.quant: level for level in before.levels}
    theirs = {level.quant: level for level in after.levels}
    columns = [column for table in tables(before)[1:] for column in table.columns if column.by]
    pairs = [_Pair(before, a, after, theirs[name]) for name, a in ours.items() if name in theirs]
    changes = [pair.change(column) for pair in pairs for column in columns]
    return Changes(
        conditions=tuple(_conditions(before, after)),
        only_before=tuple(name for name in ours if name not in theirs),
        only_after=tuple(name for name in theirs if name not in ours),
        changes=tuple(change for change in changes if change is not None),
        recommended=(before.verdict.recommended, after.verdict.recommended),
    )


def _conditions(before: BenchReport, after: BenchReport) -> list[str]:
    """What else is different, so that a change may come from there."""

    def facts(report: BenchReport) -> dict[str, object]:
        machine, corpus = report.machine, report.corpus
        return {
            "model": report.model,
            "processor": machine.cpu,
            "CPUs": machine.cpus,
            "llama-cpp-python": machine.versions.bindings,
            "worker": machine.versions.worker,
            "reference": report.reference,
            "text": corpus and corpus.sha256[:16],
            "questions": report.questions,
            "streams": report.streams,
            **msgspec.structs.asdict(report.sizes),
        }

    a, b = facts(before), facts(after)
    return [
        f"{name.replace('_', ' ')}: {a[name]} before, {b[name]} after"
        for name in a
        if a[name] != b[name]
    ]


class _Pair(NamedTuple):
    before: BenchReport
    a: LevelReport
    after: BenchReport
    b: LevelReport

    def change(self, column: Column) -> Change | None:
        """How a figure changed; None where one of the two does not have it."""
        sizes = self.before.sizes, self.after.sizes
        if any(getattr(sizes[0], name) != getattr(sizes[1], name) for name in column.sizes):
            return None
        a, b = column.value(self.a), column.value(self.b)
        if isinstance(a, Figure) and isinstance(b, Figure):
            floor = self._speed_floor()
            found = difference(a, b, floor=floor)
            if found.margin is None:
                return self._change(column, a.mean, found, "1 repetition")
            # What processes differ by does not show in the repetitions of one.
            margin = max(found.margin, floor * abs(a.mean))
            return self._change(column, a.mean, msgspec.structs.replace(found, margin=margin))
        if a is None or b is None or isinstance(a, Figure) or isinstance(b, Figure):
            return None
        if column.by in ("nll", "kld"):
            return self._of_windows(column, a, b)
        margin = _MATERIAL_MEMORY * abs(a) if column.by == "memory" else None
        is_real = abs(b - a) > (margin or 0.0)
        return self._change(column, a, Difference(value=b - a, margin=margin, is_real=is_real))

    def _speed_floor(self) -> float:
        """The share that one process differs by from another."""
        noises = (self.before.verdict.speed_noise, self.after.verdict.speed_noise)
        return max(MATERIAL_SPEED, 1.96 * math.hypot(*(noise or 0.0 for noise in noises)))

    def _of_windows(self, column: Column, before: float, after: float) -> Change | None:
        """Window by window, where both saw the same text against the same reference."""
        a, b = self.a.quality, self.b.quality
        assert a is not None
        assert b is not None
        note = self._other_text(a, b)
        if column.by == "nll" and not note:
            nll = paired_difference(a.window_nll, b.window_nll)
            margin = None if nll.margin is None else nll.margin * after
            ppl = Difference(value=after - before, margin=margin, is_real=nll.is_real)
            return self._change(column, before, ppl)
        if column.by == "kld":
            if self.a.is_reference and self.b.is_reference:  # of itself, which is only rounding
                return None
            if not note and _reference(self.before) != _reference(self.after):
                note = "other reference"
            if not note:
                kld = paired_difference(a.window_kld, b.window_kld)
                return self._change(column, before, kld)
        return self._change(column, before, _plain(before, after, is_real=False), note)

    def _other_text(self, a: Quality, b: Quality) -> str:
        """Why windows of the two cannot be compared; empty where they can."""
        texts = [
            corpus.sha256 if corpus else None for corpus in (self.before.corpus, self.after.corpus)
        ]
        if texts[0] != texts[1] or texts[0] is None:
            return "other text"
        counts = {len(part) for q in (a, b) for part in (q.window_kld, q.window_nll)}
        return "" if a.window == b.window and len(counts) == 1 else "other windows"

    def _change(self, column: Column, before: float, found: Difference, note: str = "") -> Change:
        return Change(
            quant=self.a.quant, figure=column.title, unit=column.unit, before=before,
            after=before + found.value, margin=found.margin, is_real=found.is_real, note=note,
        )  # fmt: skip


def _plain(before: float, after: float, *, is_real: bool) -> Difference:
    """The difference of figures without an error."""
    return Difference(value=after - before, margin=None, is_real=is_real)


def _reference(report: BenchReport) -> str | None:
    """The content of what divergences are measured from."""
    return next((level.sha256 for level in report.levels if level.is_reference), None)
