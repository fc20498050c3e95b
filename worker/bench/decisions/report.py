"""What was measured of a model's decisions, level by level, and which level to take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from worker.bench.decisions.answers import DecisionAnswer, DecisionAnswers
from worker.bench.decisions.metrics import Measures, Predictions, measures, upper_difference
from worker.bench.decisions.temperature import cross_fitted, temperatures
from worker.bench.figures import plus_minus
from worker.bench.sections import Machine
from worker.machine import human_bytes
from worker.model.calibration import KINDS, QuestionKind, ScoringMode, TemperatureFit, group_of

FORMAT = "worker-bench-decisions-1"
MAX_LOST = 0.03  # share of questions
MAX_NLL = 0.05  # nats
RULE = (
    "A level qualifies if its -ln p is better than that of chance. It may answer "
    f"{MAX_LOST:.0%} fewer questions right than the reference, and have a -ln p {MAX_NLL:g} nats "
    "higher. Each holds with 95 % confidence, and with the level's own temperatures. "
    "Of these the smallest."
)
HEADINGS = ("level", "size", "right", "-ln p", "with T", "Brier", "ECE", "with T", "floor",
            "flips", "mass", "answers/s")  # fmt: skip
KIND_HEADINGS = ("level", "type", "questions", "right", "-ln p", "Brier", "ECE", "flips", "T",
                 "held out: -ln p", "ECE")  # fmt: skip
MEANING = (
    "right: questions whose likeliest option is right. -ln p, Brier: of the right option; lower is "
    "better. ECE: expected calibration error in 15 bins of equal mass; floor: that of a perfectly "
    "calibrated model, by chance. with T: with temperatures that were fitted on the other half of "
    "the states. flips: orders of the options that would have chosen another one. mass: "
    "probability of writing any option. ±: standard error, states drawn anew."
)


class DecisionLevel(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one level; `error` says why something is missing.

    whole, by_kind  as the level answered
    calibrated      with temperatures fitted on the other half
    flips           share of the orders that would have chosen another option
    label_mass      mean probability of writing any option
    temperatures    fitted on one half; `held_out` is of the other
    calibration     the file that `worker serve` uses; None: it could not be written
    lost, nll       beside the reference on the same questions: the difference, and what it is below
                    with 95 % confidence
    gain            the same of -ln p beside guessing: below 0 it knows more than the options
    """

    quant: str
    is_reference: bool
    file: str
    sha256: str
    size_bytes: int
    bpw: float
    whole: Measures | None = None
    by_kind: dict[QuestionKind, Measures] = {}
    calibrated: Measures | None = None
    flips: float = 0.0
    flips_by_kind: dict[QuestionKind, float] = {}
    label_mass: float = 0.0
    per_s: float = 0.0
    tokens: int = 0
    prompt_version: str = ""
    modes: dict[QuestionKind, ScoringMode] = {}
    temperatures: dict[QuestionKind, float] = {}
    questions: dict[QuestionKind, int] = {}
    held_out: dict[QuestionKind, TemperatureFit] = {}
    calibration: str | None = None
    lost: tuple[float, float] | None = None
    nll: tuple[float, float] | None = None
    gain: tuple[float, float] | None = None
    passes: bool | None = None
    error: str | None = None


class DecisionReport(msgspec.Struct, frozen=True, kw_only=True):
    """A run. `recommended`: the level to take, None where no level is known to qualify."""

    format: str
    created: str
    model: str
    reference: str
    questions: str
    questions_sha256: str
    num_questions: int
    num_states: int
    mode: str
    orders: int
    levels: tuple[DecisionLevel, ...]
    recommended: str | None
    rule: str
    machine: Machine
    notes: tuple[str, ...]


class LevelScores(msgspec.Struct, frozen=True):
    """A level's answers as predictions: as they are, and with the other half's temperatures.

    kinds  of each, as temperatures are fitted; None: it was read in another mode than most
    modes  by kind
    """

    plain: Predictions
    calibrated: Predictions
    kinds: tuple[QuestionKind | None, ...]
    modes: dict[QuestionKind, ScoringMode]


def level_scores(found: DecisionAnswers) -> LevelScores:
    """Of at least one answer."""
    answers = found.answers
    plain = Predictions.of(
        [answer.probabilities for answer in answers],
        [answer.right for answer in answers],
        [answer.state for answer in answers],
    )
    groups: list[QuestionKind] = [
        group_of(answer.kind, len(answer.probabilities)) for answer in answers
    ]
    counts: Counter[tuple[QuestionKind, ScoringMode]] = Counter(
        zip(groups, (answer.mode for answer in answers), strict=True)
    )
    modes: dict[QuestionKind, ScoringMode] = {
        group: mode for (group, mode), _ in reversed(counts.most_common())
    }
    kinds: tuple[QuestionKind | None, ...] = tuple(
        group if modes[group] == answer.mode else None
        for group, answer in zip(groups, answers, strict=True)
    )
    return LevelScores(plain, cross_fitted(plain, kinds), kinds, modes)


def with_answers(level: DecisionLevel, found: DecisionAnswers, mine: LevelScores) -> DecisionLevel:
    """The level with its measures."""
    by_kind: dict[QuestionKind, Measures] = {}
    flips_by_kind: dict[QuestionKind, float] = {}
    answers = found.answers
    for kind in KINDS:
        places = [place for place, answer in enumerate(answers) if answer.kind == kind]
        if places:
            by_kind[kind] = measures(mine.plain.some(places))
            flips_by_kind[kind] = _flips([answers[place] for place in places])
    fitted, questions, held_out = temperatures(mine.plain, mine.kinds)
    return msgspec.structs.replace(
        level,
        whole=measures(mine.plain),
        by_kind=by_kind,
        calibrated=measures(mine.calibrated),
        gain=upper_difference(
            mine.calibrated.losses, mine.calibrated.guesses, mine.calibrated.states
        ),
        flips=_flips(answers),
        flips_by_kind=flips_by_kind,
        label_mass=sum(answer.label_mass for answer in answers) / len(answers),
        per_s=len(answers) / found.seconds,
        tokens=found.tokens,
        prompt_version=found.prompt_version,
        modes=mine.modes,
        temperatures=fitted,
        questions=questions,
        held_out=held_out,
    )


def _flips(answers: Sequence[DecisionAnswer]) -> float:
    return sum(answer.flips for answer in answers) / sum(answer.orders for answer in answers)


def beside(level: DecisionLevel, mine: LevelScores, reference: LevelScores) -> DecisionLevel:
    """The level with what it loses beside the reference, and whether it qualifies: False if it is
    known to lose too much, None if more questions would be needed to tell."""
    states = mine.plain.states
    lost = upper_difference(reference.plain.hits, mine.plain.hits, states)
    nll = upper_difference(mine.calibrated.losses, reference.calibrated.losses, states)
    lower = [2 * mean - upper for mean, upper in (lost, nll)]
    passes = None
    if lost[1] <= MAX_LOST and nll[1] <= MAX_NLL:
        passes = True
    elif lower[0] > MAX_LOST or lower[1] > MAX_NLL:
        passes = False
    return msgspec.structs.replace(level, lost=lost, nll=nll, passes=passes)


def recommend(levels: Sequence[DecisionLevel]) -> str | None:
    """The level that the rule chooses; None where nothing is compared."""
    compared = [level for level in levels if level.whole is not None]
    may = [
        level
        for level in compared
        if level.gain and level.gain[1] < 0 and (level.passes or level.is_reference)
    ]
    if len(compared) < 2 or not may:
        return None
    return min(may, key=lambda level: level.size_bytes).quant


def rows_of(report: DecisionReport) -> list[tuple[str, ...]]:
    """The table's rows as texts, in the order of HEADINGS."""
    return [_row(report, level) for level in report.levels]


def kind_rows_of(report: DecisionReport) -> list[tuple[str, ...]]:
    """A row for each level and type, in the order of KIND_HEADINGS."""
    rows: list[tuple[str, ...]] = []
    for level in report.levels:
        for kind, found in level.by_kind.items():
            fit, temperature = level.held_out.get(kind), level.temperatures.get(kind)
            after = ("–",) * 3
            if fit is not None and temperature is not None:
                after = (f"{temperature:.2f}", _change(fit.nll), _change(fit.ece))
            rows.append(
                (level.quant, kind, str(found.questions),
                 plus_minus(found.accuracy, found.accuracy_error, 3),
                 plus_minus(found.nll, found.nll_error, 3), f"{found.brier:.3f}",
                 f"{found.ece:.3f}", f"{level.flips_by_kind[kind]:.1%}", *after)
            )  # fmt: skip
    return rows


def words_of(report: DecisionReport) -> list[str]:
    """What the figures are of, the verdict with its rule, and the files written, a paragraph
    each."""
    found = [
        f"{report.num_questions} questions about {report.num_states} states: "
        f"{report.questions}. {MEANING}"
    ]
    found += [f"{level.quant}: {level.error}" for level in report.levels if level.error]
    for level in report.levels:
        if level.lost and level.nll:
            verdict = {True: "qualifies", False: "does not qualify", None: "cannot be told"}
            found.append(
                f"{level.quant} {verdict[level.passes]}: {-level.lost[0]:+.1%} of questions right "
                f"(with 95 % confidence above {-level.lost[1]:+.1%}), -ln p {level.nll[0]:+.3f} "
                f"(below {level.nll[1]:+.3f})."
            )
        if level.gain and level.gain[1] >= 0:
            found.append(f"{level.quant} is not known to answer better than chance.")
    if report.recommended:
        found.append(f"Take {report.recommended} for decisions. {report.rule}")
    written = [level.calibration for level in report.levels if level.calibration]
    if written:
        found.append(f"`worker serve` calibrates with: {', '.join(written)}")
    return found + list(report.notes)


def curve(level: DecisionLevel) -> tuple[str, str]:
    """Two lines of bars, one for each bin: how confident the level was, how often it was right."""
    bins = level.whole.bins if level.whole else ()
    return (
        "".join(_bar(each.confidence) for each in bins),
        "".join(_bar(each.accuracy) for each in bins),
    )


def _bar(share: float) -> str:
    return "▁▂▃▄▅▆▇█"[min(7, int(share * 8))]


def _change(values: tuple[float, float]) -> str:
    return f"{values[0]:.3f} → {values[1]:.3f}"


def _row(report: DecisionReport, level: DecisionLevel) -> tuple[str, ...]:
    name = ("→ " if level.quant == report.recommended else "") + level.quant
    name += "*" if level.is_reference else ""
    size = human_bytes(level.size_bytes)
    whole, calibrated = level.whole, level.calibrated
    if whole is None or calibrated is None:
        return (name, size, *("–",) * (len(HEADINGS) - 2))
    return (
        name, size, plus_minus(whole.accuracy, whole.accuracy_error, 3),
        plus_minus(whole.nll, whole.nll_error, 3), f"{calibrated.nll:.3f}", f"{whole.brier:.3f}",
        f"{whole.ece:.3f}", f"{calibrated.ece:.3f}", f"{whole.ece_floor:.3f}",
        f"{level.flips:.1%}", f"{level.label_mass:.3f}", f"{level.per_s:.1f}",
    )  # fmt: skip
