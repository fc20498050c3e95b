"""What the report says in words: the verdict, what is real, how it was measured."""

from __future__ import annotations

from worker.bench.figures import Difference
from worker.bench.report import BenchReport, Comparison, LevelReport
from worker.bench.report.verdict import VerdictRule
from worker.bench.sections import Quality
from worker.machine import human_bytes

_CONFIDENCE = {
    "sure": "The measurements are clear.",
    "likely": "That is likely: a part of the comparison is within the errors.",
    "toss-up": "Low confidence: other levels are indistinguishable from it.",
}
_HARDLY = 0.01  # nats: below, other software calls a quant level lossless in practice
_NOTES = (
    "± is one standard error in tables, and half of the 95 % interval in sentences.",
    "A dash: not measured.",
)


def paragraphs(report: BenchReport) -> list[tuple[str, list[str]]]:
    """All that a report says in words, by title."""
    verdict = report.verdict
    front = ", ".join(verdict.pareto) or "no level"
    found = [
        ("Verdict", [*verdict_lines(report), f"Rule: {verdict.rule}",
                     f"Beaten by no other level in size, speed and accuracy together: {front}."]),
        ("Levels", level_lines(report)),
        ("Step by step", [comparison_text(found) for found in verdict.comparisons]),
        ("How to read the figures", scale_lines(report)),
        ("How it was measured", measurement_lines(report)),
    ]  # fmt: skip
    if failed := failures(report):
        found.insert(1, ("Notes", failed))
    return [(title, texts) for title, texts in found if texts]


def verdict_lines(report: BenchReport) -> list[str]:
    """Which level to take, why, and what is not sure."""
    verdict = report.verdict
    file = [
        f"{level.quant} is {level.file}."
        for level in report.levels
        if level.fit is not None and level.quant == verdict.recommended
    ]
    return [headline(report), *file, *verdict.reasons, *verdict.doubts]


def failures(report: BenchReport) -> list[str]:
    """What has no figures, and what there is to know about the run."""
    return [
        f"{level.quant}, {stage}: {why}"
        for level in report.levels
        for stage, why in level.errors.items()
    ] + list(report.notes)


def headline(report: BenchReport) -> str:
    """The level to take, what it means beside the reference, and how sure that is."""
    verdict = report.verdict
    if verdict.recommended is None:
        return "No level is recommended."
    confidence = _CONFIDENCE[verdict.confidence]
    levels = {level.quant: level for level in report.levels}
    level, reference = levels[verdict.recommended], levels.get(report.reference)
    if level.is_reference or reference is None or not (level.quality and reference.speed):
        what = ", the reference," if level.is_reference else ""
        return f"Take {level.quant}{what} on this machine. {confidence}"
    found = VerdictRule(list(report.levels), report.max_kld).speed_difference(reference, level)
    ratio = level.writing_speed().mean / (reference.writing_speed().mean or 1.0)
    speed = f"{ratio:.1f} times the speed" if found.is_real else "about the same speed"
    return (
        f"Take {level.quant} on this machine: {_grade(level, report)} {reference.quant}, "
        f"{level.size_bytes / reference.size_bytes:.0%} of its size, {speed}. {confidence}"
    )


def level_lines(report: BenchReport) -> list[str]:
    """What each level's divergence means, a sentence each; none if quality was not measured."""
    if all(level.quality is None for level in report.levels):
        return []
    whys = {found.quant: found.why.rstrip(".") for found in report.verdict.judgements}
    return [_level_line(level, whys[level.quant], report) for level in report.levels]


def _level_line(level: LevelReport, why: str, report: BenchReport) -> str:
    quality = level.quality
    if level.is_reference or quality is None or "nats" not in why:
        return f"{level.quant} {why}."
    return (
        f"{level.quant}: {_grade(level, report)} {report.reference}. It {why}, and prefers the "
        f"same token in {100 * quality.same_top:.1f} of 100 places."
    )


def _grade(level: LevelReport, report: BenchReport) -> str:
    """How near a scored level is to the reference, in words that its name completes."""
    passes = next(f.passes for f in report.verdict.judgements if f.quant == level.quant)
    assert level.quality is not None
    if passes is None:
        return "perhaps not close enough to"
    if not passes:
        return "not close enough to"
    return "hardly different from" if level.quality.kld_mean < _HARDLY else "close to"


def scale_lines(report: BenchReport) -> list[str]:
    """What the figures mean."""
    if all(level.quality is None for level in report.levels):
        return list(_NOTES)
    limit = report.max_kld
    scale = f"up to {_HARDLY:g} hardly different, " if limit > _HARDLY else ""
    return [
        f"KLD is how far a level's probabilities are from those of {report.reference}: {scale}up "
        f"to {limit:g} close (the limit, --max-kld), above that noticeably different answers.",
        *_NOTES,
    ]


def comparison_text(found: Comparison) -> str:
    """One step down in size, and whether it makes a difference."""
    parts = [f"{found.b} beside {found.a}: {found.size:.0%} of the size"]
    if found.speed is not None:
        parts.append(f"speed {_difference(found.speed, '+.1%', '.1%', '')}")
    if found.kld is not None:
        parts.append(f"divergence {_difference(found.kld, '+.5f', '.5f', ' nats')}")
    return ", ".join(parts)


def _difference(found: Difference, value: str, margin: str, unit: str) -> str:
    """`+3.2% ± 0.4%`, and if it is within the errors; `value` and `margin` are formats."""
    interval = "" if found.margin is None else f" ± {found.margin:{margin}}"
    judged = "" if found.is_real else " (within the errors)"
    return f"{found.value:{value}}{interval}{unit}{judged}"


def measured_line(report: BenchReport) -> str:
    """The most important of `measurement_lines`, for a terminal."""
    quality = next((level.quality for level in report.levels if level.quality), None)
    assert report.corpus is not None or quality is None
    about = "No quality" if quality is None else f"Quality on {share_of_text(quality)}"
    of = f" of {report.corpus.name}" if quality is not None and report.corpus is not None else ""
    return (
        f"{about}{of}; speed in {report.sizes.repetitions} repetitions. `--out DIR` writes all "
        "tables, a plot and every condition; a longer --time measures more."
    )


def measurement_lines(report: BenchReport) -> list[str]:
    machine, build, sizes = report.machine, report.machine.versions, report.sizes
    bandwidth = machine.bandwidth
    deep = f", also after {sizes.depth} tokens of context" if sizes.depth else ""
    lines = [
        f"{report.created}, effort {report.effort}, --time {report.time_s:.0f}s, "
        f"seed {report.seed}.",
        f"{machine.cpu}, {machine.cpus} CPUs, {human_bytes(machine.memory_bytes)}, "
        f"{machine.system}; numpy reads {bandwidth.per_s.mean / 1e9:.1f} GB/s "
        f"(threads: {bandwidth.threads}).",
        f"worker {build.worker}, llama-cpp-python {build.bindings} "
        f"({', '.join(build.backends)}), Python {build.python}.",
        f"Speed: prompts of {sizes.prompt} tokens, {sizes.decode} tokens written, "
        f"{sizes.repetitions} repetitions after one that is not counted{deep}; over HTTP "
        f"{sizes.requests} rounds of requests in each of two passes.",
    ]
    if report.verdict.speed_noise is not None:
        lines.append(
            f"From one pass over HTTP to the other speeds differ by "
            f"{report.verdict.speed_noise:.1%} (one standard deviation, pooled); differences of "
            "speed are judged by that."
        )
    if report.corpus is not None:
        lines += _quality(report)
    lines += [
        f"{level.quant} was chosen by the other two thirds of {fit.text} in {fit.seconds:.0f} s, "
        f"with {fit.imatrix or 'an importance matrix of that text'} and {fit.probes} probes; its "
        f"estimate is {fit.estimate:.5f} nats."
        for level in report.levels
        if (fit := level.fit) is not None
    ]
    drops = [level.load.dropped for level in report.levels if level.load]
    if any(share is None or share < 1 for share in drops):
        lines.append(
            "Cold loads: the system did not drop all of the files from its cache "
            f"({', '.join('unknown' if s is None else f'{s:.0%}' for s in drops)} gone), so they "
            "are too fast."
        )
    notes = {found[2] for level in report.levels if (found := report.bandwidth(level))} - {None}
    lines += [f"Share of the bandwidth: none, {note}." for note in sorted(map(str, notes))]
    cached = [
        f"{level.quant} ({', '.join(level.cached)})" for level in report.levels if level.cached
    ]
    if cached:
        lines.append(f"Taken from an earlier run: {'; '.join(cached)}.")
    return lines


def _quality(report: BenchReport) -> list[str]:
    assert report.corpus is not None
    lines: list[str] = []
    first = next((level.quality for level in report.levels if level.quality), None)
    if first is not None:
        lines.append(
            f"Quality: {share_of_text(first)} of {report.corpus.name} (sha256 "
            f"{report.corpus.sha256[:16]}…), in {first.windows} windows of {first.window} tokens, "
            f"whose second halves are scored ({first.tokens:,} tokens); "
            f"{first.choices.questions} questions ({report.questions}), "
            f"{first.greedy.prompts} greedy texts."
        )
        head, drawn = first.reference_rows
        kept = f"The reference's rows were kept whole, {head:,} tokens each."
        if drawn:
            errors = [lv.quality.kld_sampling_error for lv in report.levels if lv.quality]
            kept = (
                f"The reference's rows were kept as their {head:,} likeliest tokens and {drawn} "
                f"drawn of the others, which adds an error of at most {max(errors):.1g} nats "
                "(one standard error) to a divergence."
            )
        lines.append(kept)
    floor = report.noise_floor
    if floor is not None and first is not None:
        other = (
            ""
            if floor.threads == first.threads
            else (f"{floor.threads} instead of {first.threads} threads and ")
        )
        lines.append(
            f"Noise floor: {report.reference} against itself with {other}{floor.batch_rows} "
            f"instead of {first.batch_rows} tokens at once diverges by "
            f"{abs(floor.kld_mean):.1g} nats, {floor.same_top:.2%} same top token, "
            f"{floor.choices.flips:.1%} flips."
        )
    return lines


def share_of_text(quality: Quality) -> str:
    """How much of the text was scored: all of it, or as much as there was time for."""
    read = quality.windows * quality.window
    if quality.text_tokens - read < quality.window:
        return f"the whole text ({quality.text_tokens:,} tokens)"
    return f"{read:,} of the {quality.text_tokens:,} tokens"
