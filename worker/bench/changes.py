"""Two reports side by side: what changed from one to the other, and whether it is real."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from worker.bench.results import FORMAT, LevelQuality, LevelReport, Report
from worker.bench.statistics import Difference, difference, paired_difference
from worker.bench.verdict import MATERIAL_SPEED
from worker.errors import UsageError

# Resident memory differs by this share from start to start: heaps, threads, what is mapped.
_MATERIAL_MEMORY = 0.02
_LARGEST = 1e30


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one level, before and after.

    margin   half of the 95 % interval around `after - before`; None where there is none
    is_real  outside of the errors; where a figure has none, more than runs differ by anyway
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


def read_report(path: Path) -> Report:
    """A report.json. Raises UsageError where it is none."""
    try:
        raw = path.read_bytes()
        report = msgspec.json.decode(raw, type=Report)
        _check_numbers(msgspec.json.decode(raw))
        if any(level.quality and level.quality.ppl <= 0 for level in report.levels):
            raise ValueError("a perplexity is not above 0")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # msgspec's own are ValueErrors
        raise UsageError(
            f"{path} is no report of `worker bench`: {error}.", hint="Give a report.json."
        ) from None
    if report.format != FORMAT:
        raise UsageError(f"{path} has format {report.format}, {FORMAT} is read here.")
    return report


def _check_numbers(value: Any) -> None:
    """Raise ValueError for a number that nothing measured here can be, and no float can hold
    the square of."""
    if isinstance(value, dict):
        value = list(cast("dict[str, Any]", value).values())
    if isinstance(value, list):
        for part in cast("list[Any]", value):
            _check_numbers(part)
    elif isinstance(value, int | float) and abs(value) > _LARGEST:
        raise ValueError("it holds a number that was never measured")


def changes_between(before: Report, after: Report) -> Changes:
    """Every figure of every level that is in both."""
    ours = {level.quant: level for level in before.levels}
    theirs = {level.quant: level for level in after.levels}
    found: list[Change] = []
    for name, level in ours.items():
        if name in theirs:
            found += _of_level(before, level, after, theirs[name])
    return Changes(
        conditions=tuple(_conditions(before, after)),
        only_before=tuple(name for name in ours if name not in theirs),
        only_after=tuple(name for name in theirs if name not in ours),
        changes=tuple(found),
        recommended=(before.verdict.recommended, after.verdict.recommended),
    )


def _conditions(before: Report, after: Report) -> list[str]:
    """What else is different, so that a change may come from there."""
    pairs = [
        ("model", before.model, after.model),
        ("processor", before.machine.cpu, after.machine.cpu),
        ("CPUs", before.machine.cpus, after.machine.cpus),
        ("llama-cpp-python", before.build.bindings, after.build.bindings),
        ("worker", before.build.worker, after.build.worker),
        ("reference", before.reference, after.reference),
        ("text", before.corpus and before.corpus.sha256[:16],
         after.corpus and after.corpus.sha256[:16]),
        ("streams", before.streams, after.streams),
    ]  # fmt: skip
    pairs += [
        (name.replace("_", " "), getattr(before.sizes, name), getattr(after.sizes, name))
        for name in before.sizes.__struct_fields__
    ]
    return [f"{name}: {a} before, {b} after" for name, a, b in pairs if a != b]


def _of_level(before: Report, a: LevelReport, after: Report, b: LevelReport) -> list[Change]:
    noise = math.hypot(before.verdict.speed_noise or 0.0, after.verdict.speed_noise or 0.0)
    floor = max(MATERIAL_SPEED, 1.96 * noise)  # what one process differs by from another
    found = [_plain(a, "size", "bytes", a.size_bytes, b.size_bytes, 0.0)]
    if a.speed and b.speed:
        theirs = {(r.kind, r.streams, r.depth, r.tokens): r for r in b.speed.rates}
        for rate in a.speed.rates:
            other = theirs.get((rate.kind, rate.streams, rate.depth, rate.tokens))
            if other is not None:
                name = f"{rate.kind} x{rate.streams} at {rate.depth}"
                change = difference(rate.per_s, other.per_s, floor=floor)
                found.append(_judged(a, name, "tokens/s", rate.per_s.mean, change))
        requests = {(r.streams, r.prompt, r.tokens): r for r in b.speed.http_requests}
        for request in a.speed.http_requests:
            same = requests.get((request.streams, request.prompt, request.tokens))
            if same is not None:
                name = f"HTTP x{request.streams}"
                change = difference(request.per_s, same.per_s, floor=floor)
                found.append(_judged(a, name, "tokens/s", request.per_s.mean, change))
    if a.load and b.load:
        change = difference(a.load.warm, b.load.warm, floor=floor)
        found.append(_judged(a, "warm load", "s", a.load.warm.mean, change))
    if a.memory and b.memory:
        for name in ("peak_rss", "server_peak_rss"):
            was, is_ = getattr(a.memory, name), getattr(b.memory, name)
            if was and is_:
                found.append(_plain(a, name, "bytes", was, is_, _MATERIAL_MEMORY))
    return found + _of_quality(before, a, after, b)


def _of_quality(before: Report, a: LevelReport, after: Report, b: LevelReport) -> list[Change]:
    """Window by window where both saw the same text against the same reference."""
    if not (a.quality and b.quality):
        return []
    ours, theirs = a.quality, b.quality
    found: list[Change] = []
    note = _other_text(before, ours, after, theirs)
    if note:
        found.append(_plain(a, "PPL", "", ours.ppl, theirs.ppl, math.inf, note))
    else:
        nll = _paired(ours.window_nll, theirs.window_nll)
        found.append(_judged(a, "ln PPL", "nats", math.log(ours.ppl), nll))
    if a.is_reference and b.is_reference:  # of itself, which is nothing but rounding
        return found
    if _reference(before) != _reference(after):
        note = "other reference"
    if note:
        found.append(_plain(a, "KLD", "nats", ours.kld_mean, theirs.kld_mean, math.inf, note))
    else:
        kld = _paired(ours.window_kld, theirs.window_kld)
        found.append(_judged(a, "KLD", "nats", ours.kld_mean, kld))
    return found


def _other_text(before: Report, a: LevelQuality, after: Report, b: LevelQuality) -> str:
    """Why windows of the two cannot be held against each other; empty where they can."""
    if before.corpus is None or after.corpus is None:
        return "other text"
    if before.corpus.sha256 != after.corpus.sha256:
        return "other text"
    counts = {len(part) for q in (a, b) for part in (q.window_kld, q.window_nll)}
    return "" if a.window == b.window and len(counts) == 1 else "other windows"


def _reference(report: Report) -> str | None:
    """The content of what divergences are measured from."""
    return next((level.sha256 for level in report.levels if level.is_reference), None)


def _paired(a: tuple[float, ...], b: tuple[float, ...]) -> Difference:
    return paired_difference(np.array(a), np.array(b), np.ones(len(a)))


def _judged(level: LevelReport, name: str, unit: str, before: float, found: Difference) -> Change:
    return Change(
        quant=level.quant,
        figure=name,
        unit=unit,
        before=before,
        after=before + found.value,
        margin=found.margin if math.isfinite(found.margin) else None,
        is_real=found.is_real,
        note="" if math.isfinite(found.margin) else "1 repetition",
    )


def _plain(
    level: LevelReport, name: str, unit: str, before: float, after: float, floor: float,
    note: str = "",
) -> Change:  # fmt: skip
    """A figure without an error: real above a share `floor` of what it was."""
    return Change(
        quant=level.quant,
        figure=name,
        unit=unit,
        before=before,
        after=after,
        margin=None,
        is_real=abs(after - before) > floor * abs(before) if math.isfinite(floor) else False,
        note=note,
    )
