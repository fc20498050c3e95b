"""Which level decides well enough, what the tables show, and the curves."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import msgspec
import numpy as np
import pytest

from tests.bench.report import reports
from worker.bench.decisions.answers import DecisionAnswer, DecisionAnswers
from worker.bench.decisions.documents import as_markdown, as_picture
from worker.bench.decisions.report import (
    FORMAT,
    HEADINGS,
    KIND_HEADINGS,
    RULE,
    DecisionLevel,
    DecisionReport,
    beside,
    curve,
    kind_rows_of,
    level_scores,
    recommend,
    rows_of,
    with_answers,
    words_of,
)
from worker.model.calibration import KINDS, group_of

MACHINE = reports.report([reports.level("F16", 1, 1, 0.0, reference=True)]).machine
OPTIONS = {"statement": 2, "choice": 4, "scale": 3}


def answers(noise: float, count: int = 900, *, sharpness: float = 1.0) -> DecisionAnswers:
    """Of three types in turn; the more noise, the more are wrong. The questions are the same."""
    questions, blur = np.random.default_rng(1), np.random.default_rng(2)
    found: list[DecisionAnswer] = []
    for number in range(count):
        kind = KINDS[number % 3]
        options = OPTIONS[kind]
        right = int(questions.integers(options))
        logs = questions.normal(size=options)
        logs[right] += 1.0  # so the softmax of the logarithms is true
        logs = sharpness * (logs + noise * blur.normal(size=options))
        row = np.exp(logs) / np.exp(logs).sum()
        found.append(
            DecisionAnswer(
                kind=kind, probabilities=tuple(row.tolist()), right=right, state=number // 4,
                label_mass=0.9, orders=2, flips=number % 10 == 0, mode="letters",
            )
        )  # fmt: skip
    return DecisionAnswers(answers=tuple(found), prompt_version="3", tokens=count * 50, seconds=9.0)


def level(quant: str, size: int, found: DecisionAnswers | None, **more: object) -> DecisionLevel:
    made = DecisionLevel(
        quant=quant, is_reference=quant == "F16", file=f"{quant}.gguf", sha256=quant,
        size_bytes=size, bpw=8.0,
    )  # fmt: skip
    if found is not None:
        made = with_answers(made, found, level_scores(found))
    return msgspec.structs.replace(made, **more)


def report(*levels: DecisionLevel, model: str = "m") -> DecisionReport:
    return DecisionReport(
        format=FORMAT, created="2026-11-28", model=model, reference="F16", questions="mine.jsonl",
        questions_sha256="0", num_questions=900, num_states=225, mode="auto", orders=2,
        levels=levels, recommended=recommend(levels), rule=RULE, machine=MACHINE,
        notes=(),
    )  # fmt: skip


REFERENCE = answers(0.0)
TWIN, POOR = answers(0.1), answers(3.0)


def compared() -> DecisionReport:
    first = level_scores(REFERENCE)
    return report(
        level("F16", 1600, REFERENCE),
        beside(level("Q8_0", 800, TWIN), level_scores(TWIN), first),
        beside(level("Q2_K", 300, POOR), level_scores(POOR), first),
    )


def test_the_smallest_that_loses_nothing_is_taken() -> None:
    """A level that answers as the reference does qualifies, one that is often wrong does not."""
    found = compared()
    assert [each.passes for each in found.levels] == [None, True, False]
    assert found.recommended == "Q8_0"


def test_few_questions_cannot_tell() -> None:
    """A level whose difference may be as large as the limit is neither taken nor refused."""
    few, other = answers(0.0, 24), answers(0.3, 24)
    made = beside(level("Q4_0", 400, other), level_scores(other), level_scores(few))
    assert made.passes is None
    assert recommend([level("F16", 1600, few), made]) == "F16"


def test_one_level_is_compared_with_nothing() -> None:
    """Without a second level there is no verdict; a level that failed is none."""
    assert recommend([level("F16", 1600, REFERENCE)]) is None
    assert recommend([level("F16", 1600, REFERENCE), level("Q8_0", 9, None, error="no")]) is None


def test_measures_are_by_type() -> None:
    """Each type has its questions; flips are a share of the orders that were shown."""
    made = level("F16", 1600, REFERENCE)
    assert {kind: found.questions for kind, found in made.by_kind.items()} == dict.fromkeys(
        KINDS, 300
    )
    assert made.flips == pytest.approx(90 / 1800)
    assert made.prompt_version == "3"
    assert made.per_s == pytest.approx(100)


def test_a_temperature_mends_what_is_too_sure() -> None:
    """A level that is far too sure has a lower -ln p with its temperature, and the same
    choices."""
    made = level("F16", 1600, answers(0.0, sharpness=3.0))
    assert made.whole is not None
    assert made.calibrated is not None
    assert made.calibrated.nll < made.whole.nll - 0.05
    assert made.calibrated.ece < made.whole.ece
    assert made.calibrated.accuracy == made.whole.accuracy
    assert all(temperature > 1.5 for temperature in made.temperatures.values())


def test_two_options_are_fitted_as_statements() -> None:
    """A choice of two shares its temperature with statements, a scale of two does not."""
    assert group_of("choice", 2) == "statement"
    assert group_of("choice", 3) == "choice"
    assert group_of("scale", 2) == "scale"


def test_tables_have_all_columns() -> None:
    """A cell for each heading, also of a level that failed; words name the error and the rule."""
    failed = level("Q4_0", 400, None, error="The server ended.")
    found = msgspec.structs.replace(compared(), levels=(*compared().levels, failed))
    assert {len(row) for row in rows_of(found)} == {len(HEADINGS)}
    assert {len(row) for row in kind_rows_of(found)} == {len(KIND_HEADINGS)}
    assert len(kind_rows_of(found)) == 9
    words = "\n".join(words_of(found))
    assert "Q4_0: The server ended." in words
    assert "Take Q8_0 for decisions." in words
    assert "Q2_K does not qualify" in words


def test_curves_are_bars() -> None:
    """A line of confidences and one of accuracies, a bar for each bin, rising."""
    confident, right = curve(level("F16", 1600, REFERENCE))
    assert len(confident) == len(right) == 15
    assert list(confident) == sorted(confident)
    assert set(confident) <= set("▁▂▃▄▅▆▇█")


def test_documents_are_whole_and_harmless() -> None:
    """The picture is XML with a dot for each bin; names of models end no markup."""
    found = msgspec.structs.replace(compared(), model="<script>&\x1b[2J")
    tree = ET.fromstring(as_picture(found))
    assert len(tree.findall(".//{*}circle")) == 3 * 15
    assert len(tree.findall(".//{*}script")) == 0
    text = as_markdown(found)
    assert "\x1b" not in text
    assert text.count("\n| → Q8_0 |") == 1
    assert "no results" in as_picture(report())


def test_a_report_can_be_read_again() -> None:
    """JSON and back."""
    found = compared()
    assert msgspec.json.decode(msgspec.json.encode(found), type=DecisionReport) == found
