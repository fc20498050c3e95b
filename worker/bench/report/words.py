"""What the report says in words: the verdict, what is real, how it was measured."""

from __future__ import annotations

from worker.bench.figures import Difference
from worker.bench.report import BenchReport, Comparison
from worker.machine import human_bytes

_CONFIDENCE = {
    "sure": "sure: what decides is outside of the errors",
    "likely": "likely: a part of the comparison is within the errors",
    "toss-up": "low confidence: others are indistinguishable",
    "none": "no recommendation",
}


def paragraphs(report: BenchReport) -> list[tuple[str, list[str]]]:
    judged = [f"{found.quant} {found.why.rstrip('.')}." for found in report.verdict.judgements]
    if all(level.quality is None for level in report.levels):
        judged = []
    front = ", ".join(report.verdict.pareto) or "no level"
    found = [
        ("Verdict", [headline(report), *report.verdict.reasons, *report.verdict.doubts,
                     f"Rule: {report.verdict.rule}",
                     f"On the Pareto front, really beaten by no level: {front}."]),
        ("Levels", judged),
        ("Step by step", [comparison_text(found) for found in report.verdict.comparisons]),
        ("Measured", measurement_lines(report)),
    ]  # fmt: skip
    failed = [
        f"{level.quant}, {stage}: {why}"
        for level in report.levels
        for stage, why in level.errors.items()
    ] + list(report.notes)
    if failed:
        found.insert(1, ("Not measured", failed))
    return [(title, texts) for title, texts in found if texts]


def headline(report: BenchReport) -> str:
    verdict = report.verdict
    if verdict.recommended is None:
        return "No level is recommended."
    return f"Take {verdict.recommended} on this machine ({_CONFIDENCE[verdict.confidence]})."


def comparison_text(found: Comparison) -> str:
    """One step down in size, and whether it makes a difference."""
    parts = [f"{found.b} beside {found.a}: {found.size:.0%} of the size"]
    if found.speed is not None:
        parts.append(f"speed {_difference(found.speed, '+.1%', '.1%', '')}")
    if found.kld is not None:
        parts.append(f"divergence {_difference(found.kld, '+.5f', '.5f', ' nats')}")
    return ", ".join(parts)


def _difference(found: Difference, value: str, margin: str, unit: str) -> str:
    """`+3.2% ± 0.4%`, and that it is not real; `value` and `margin` are formats."""
    interval = "" if found.margin is None else f" ± {found.margin:{margin}}"
    return (
        f"{found.value:{value}}{interval}{unit}{'' if found.is_real else ' (no real difference)'}"
    )


def measurement_lines(report: BenchReport) -> list[str]:
    machine, build, sizes = report.machine, report.machine.versions, report.sizes
    bandwidth = machine.bandwidth
    lines = [
        f"{report.created}, effort {report.effort}, seed {report.seed}.",
        f"{machine.cpu}, {machine.cpus} CPUs, {human_bytes(machine.memory_bytes)}, "
        f"{machine.system}; numpy reads {bandwidth.per_s.mean / 1e9:.1f} GB/s "
        f"(threads: {bandwidth.threads}).",
        f"worker {build.worker}, llama-cpp-python {build.bindings} "
        f"({', '.join(build.backends)}), Python {build.python}.",
        f"Speed: prompts of {sizes.prompt} tokens, {sizes.decode} tokens written, "
        f"{sizes.repetitions} repetitions after one that is not counted, also after "
        f"{sizes.depth} tokens of context; over HTTP {sizes.requests} rounds of requests in each "
        "of two passes. In tables ± is one standard error of the repetitions, in sentences half "
        "of the 95 % interval.",
    ]
    if report.verdict.speed_noise is not None:
        lines.append(
            f"From one pass over HTTP to the other speeds differ by "
            f"{report.verdict.speed_noise:.1%} (one standard deviation, pooled); differences of "
            "speed are judged by that."
        )
    if report.corpus is not None:
        lines += _quality(report)
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
            f"Quality: {first.tokens:,} tokens scored in {first.windows} windows of "
            f"{first.window} out of {first.text_tokens:,} tokens of "
            f"{report.corpus.name} (sha256 {report.corpus.sha256[:16]}…), "
            f"{first.choices.questions} questions ({report.questions} set), "
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
