"""Fits: errors by ggml's rounding, probes in memory, and what is written."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest

from tests.support.models import architectures, ggufs
from worker.bench.fit.estimate import Estimate, factors_of, kinds_for, large_probes, probe_groups
from worker.bench.fit.fit import (
    At,
    BestFit,
    FitOptions,
    FitReport,
    Mix,
    Said,
    label_of,
)
from worker.bench.fit.harm import columns_of, rows_of, weigh
from worker.bench.fit.jobs import MatrixJob, ProbeJob, WeighJob
from worker.bench.fit.matrix import make_matrix
from worker.bench.fit.probes import exchange, probe
from worker.bench.fit.recipe import MixRecipe, digest, read_recipe, write_recipe
from worker.bench.fit.room import fit_memory, weights_room
from worker.bench.texts import split_texts
from worker.demo import HELDOUT_PATH, MODEL_PATH
from worker.errors import DiskSpaceError, DoesNotFitError, UsageError
from worker.gguf.imatrix import Collected, Sums, read_imatrix, write_imatrix
from worker.gguf.quant import ENCODINGS
from worker.gguf.splits import open_header
from worker.llama.quantize.target import quantize
from worker.llama.rounding import NUMBERS, encode, round_rows
from worker.machine import Memory
from worker.model.config import load_config
from worker.settings import Settings

TEXT = HELDOUT_PATH.read_text()[:9000]
SETTINGS = Settings(threads=1)
T = TypeVar("T")
Q, UP = "blk.0.attn_q.weight", "blk.3.ffn_up.weight"


@pytest.fixture(scope="module")
def imatrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the demo model."""
    target = tmp_path_factory.mktemp("fit") / "imatrix.gguf"
    job = MatrixJob(
        path=str(MODEL_PATH), settings=SETTINGS, texts=(TEXT,), dataset="text.txt",
        target=str(target), origin="", chunk=256, chunks=2, with_output=True,
    )  # fmt: skip
    make_matrix(job, lambda _: None, lambda: False)
    return target


def options(target: Path, **changes: Any) -> FitOptions:
    """A short fit of the demo model."""
    changes.setdefault("bits", 4.5)
    return FitOptions(
        source=MODEL_PATH, target=target, texts=(TEXT,), dataset="text.txt", settings=SETTINGS,
        threads=1, seconds=1.0, chunks=2, **changes,
    )  # fmt: skip


def report_of(options: FitOptions) -> FitReport:
    """Run it to the end."""
    *_, last = BestFit(options).events()
    assert isinstance(last, FitReport)
    return last


def test_rounding_is_that_of_the_file(imatrix: Path, tmp_path: Path) -> None:
    """FloatRows rounded in memory have the numbers that llama.cpp's quantizer writes."""
    target = tmp_path / "q4.gguf"
    quantize(MODEL_PATH, target, "Q4_K_S", threads=1, imatrix=imatrix)
    made, source = open_header(target), open_header(MODEL_PATH)
    found = {tensor.name: tensor for tensor in made.tensors}[Q]
    assert ENCODINGS[found.type].name == "Q4_K"
    every = np.arange(found.shape[1])
    rows = rows_of(source, {tensor.name: tensor for tensor in source.tensors}[Q], every)
    rounded = round_rows(NUMBERS["Q4_K"], rows, read_imatrix(imatrix).entries[Q])
    np.testing.assert_array_equal(rounded, rows_of(made, found, every))


def test_errors_fall_with_bits_and_are_those_of_all_rows(imatrix: Path) -> None:
    """More bits, less error; its unit is the root of the outputs' energy."""
    kinds = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_0")
    job = WeighJob(
        path=str(MODEL_PATH), imatrix=str(imatrix), candidates={Q: kinds, UP: kinds}, rows=10**6,
        threads=1,
    )  # fmt: skip
    errors = weigh(job, lambda _: None)
    for found in errors.values():
        assert list(found.values()) == sorted(found.values(), reverse=True)
        assert min(found.values()) > 0
    header, columns = open_header(MODEL_PATH), read_imatrix(imatrix).entries[Q]
    tensor = next(each for each in header.tensors if each.name == Q)
    rows = rows_of(header, tensor, np.arange(tensor.shape[1]))
    error = (rows - round_rows(NUMBERS["Q2_K"], rows, columns)) ** 2 @ columns
    assert errors[Q]["Q2_K"] == pytest.approx(error.sum() / (rows**2 @ columns).sum() ** 0.5)


def test_an_expert_counts_by_its_tokens(tmp_path: Path) -> None:
    """Its error has its own importance, times its share of the tokens: none if it got none. An
    old matrix, without counts, has them all alike."""
    model, matrix = architectures.write_mixtral(tmp_path / "moe.gguf"), tmp_path / "m.gguf"
    header = open_header(model)
    tensor = next(each for each in header.tensors if each.name == "blk.0.ffn_gate_exps.weight")
    width, height, experts = tensor.shape
    counts = np.array([32, 8, 0, 4])
    means = np.random.default_rng(1).random((experts, width), np.float32)
    means *= np.array([[1], [9], [5], [2]], np.float32)
    sums = {tensor.name: Sums(means.astype(float) * counts[:, None], counts)}
    collected = Collected(sums=sums, dataset="", chunks=1, chunk_size=1, origin="")
    write_imatrix(matrix, collected)
    job = WeighJob(
        path=str(model), imatrix=str(matrix), candidates={tensor.name: ("Q4_0",)}, rows=10**6,
        threads=1,
    )  # fmt: skip

    def expected(shares: np.ndarray, importance: np.ndarray) -> float:
        error = energy = 0.0
        for expert, (share, columns) in enumerate(zip(shares, importance, strict=True)):
            rows = rows_of(header, tensor, np.arange(expert * height, (expert + 1) * height))
            rounded = round_rows(NUMBERS["Q4_0"], rows, columns.astype(np.float32))
            error += share * float(((rows - rounded) ** 2 @ columns).sum())
            energy += share * float((rows**2 @ columns).sum())
        return error / energy**0.5

    found = weigh(job, lambda _: None)[tensor.name]["Q4_0"]
    assert found == pytest.approx(expected(counts / counts.sum(), means), rel=1e-5)
    name, values = tensor.name.encode(), means.astype("<f4").tobytes()
    head = struct.pack("<ii", 1, len(name)) + name + struct.pack("<ii", 1, means.size)
    matrix.write_bytes(head + values)
    found = weigh(job, lambda _: None)[tensor.name]["Q4_0"]
    assert found == pytest.approx(expected(np.ones(experts), means), rel=1e-5)


def test_probes_exchange_what_differs(imatrix: Path) -> None:
    """A group's divergence does not depend on the groups before it, and more harm more."""
    groups = (
        {Q: "Q2_K"}, {UP: "Q3_K"}, {Q: "Q2_K"}, {Q: "Q2_K", UP: "Q3_K"}, {Q: "Q8_0", UP: "Q3_K"},
        {Q: "Q2_K"},
    )  # fmt: skip
    job = ProbeJob(
        path=str(MODEL_PATH), settings=SETTINGS, imatrix=str(imatrix), text=TEXT, groups=groups,
        window=128, windows=2, threads=2,
    )  # fmt: skip
    coarse, up, again, both, fine, last = probe(job, lambda _: None)
    assert coarse == again == last
    assert 0 < up < both
    assert fine < both


def llama(**options: Any) -> Callable[[Path], Path]:
    """Writes a small Llama."""
    return lambda path: ggufs.write_llama(path, layers=1, **options)


@pytest.mark.parametrize(
    "write",
    [
        architectures.write_mixtral,
        architectures.write_lfm2,
        llama(encoding="BF16"),
        llama(encoding="F32", splits=3),
        llama(encoding="F16", tied=True),
    ],
)
def test_all_sources_are_probed(write: Callable[[Path], Path], tmp_path: Path) -> None:
    """All that can be quantized is found in memory, and an expert is rounded by its own
    importance."""
    model, matrix = write(tmp_path / "model.gguf"), tmp_path / "imatrix.gguf"
    asked = MatrixJob(
        path=str(model), settings=SETTINGS, texts=(TEXT[:500],), dataset="", target=str(matrix),
        origin="", chunk=64, chunks=2, with_output=True,
    )  # fmt: skip
    make_matrix(asked, lambda _: None, lambda: False)
    header, importance = open_header(model), read_imatrix(matrix)
    tensors = [
        each
        for each in header.tensors
        if each.name in importance.entries and kinds_for(each, importance.entries)
    ]
    assert len(tensors) > 7
    groups = tuple({each.name: kind for each in tensors} for kind in ("Q4_0", "Q8_0"))
    coarse, fine = probe(
        ProbeJob(
            path=str(model), settings=SETTINGS, imatrix=str(matrix), text=TEXT[:500],
            groups=groups, window=64, windows=1, threads=2,
        ),
        lambda _: None,
    )  # fmt: skip
    assert coarse > fine > 0
    tensor = max(tensors, key=lambda each: len(each.shape))
    written: dict[int, np.ndarray] = {}

    def write_at(_: str, data: np.ndarray, offset: int) -> None:
        written[offset] = data

    finder: Any = SimpleNamespace(write=write_at)
    with ThreadPoolExecutor(1) as pool:
        exchange(pool, 1, finder, header, importance, tensor, NUMBERS["Q4_0"])
    made = np.concatenate([written[offset] for offset in sorted(written)])
    height = tensor.shape[1]
    for expert in range(tensor.elements // tensor.shape[0] // height):
        rows = rows_of(header, tensor, np.arange(expert * height, (expert + 1) * height))
        columns = columns_of(importance, tensor, expert)
        rounded = encode(tensor.type, round_rows(NUMBERS["Q4_0"], rows, columns), None)
        np.testing.assert_array_equal(made[: rounded.size], rounded)
        made = made[rounded.size :]
    assert not made.size


def _outlook(events: list[Any]) -> int:
    """Where among the events time and memory of the whole run are said."""
    return next(
        place
        for place, event in enumerate(events)
        if isinstance(event, Said) and re.fullmatch(r"about .* of memory at most", event.text)
    )


@pytest.mark.parametrize(
    ("write", "said", "stays"),
    [
        (llama(encoding="Q8_0"), ["the source is quantized (Q8_0)"], ()),
        (architectures.write_mixtral, [], ("blk.0.ffn_gate_inp.weight",)),
    ],
)
def test_what_a_fit_says_of_its_source(
    write: Callable[[Path], Path], said: list[str], stays: tuple[str, ...], tmp_path: Path
) -> None:
    """What it takes, once a chunk is computed; that it is quantized already, and which matrices
    stay as they are."""
    model = write(tmp_path / "model.gguf")
    asked = msgspec.structs.replace(
        options(tmp_path / "fit.gguf", bits=7.0, dry_run=True, allow_requantize=True),
        source=model,
    )
    *events, report = BestFit(asked).events()
    assert isinstance(report, FitReport)
    done = [event.doing for event in events[: _outlook(events)] if isinstance(event, At)]
    assert set(done) == {"measuring speed", "computing importance"}
    told = [event.text for event in events if isinstance(event, Said)]
    assert [text.partition(":")[0] for text in told if "source" in text] == said
    assert set(stays) <= set(report.unquantized)
    assert bool(report.unquantized) == bool(stays)


def test_experts_that_got_few_tokens_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the matrix that is used, with what that means, before anything is probed."""
    model, matrix = architectures.write_mixtral(tmp_path / "moe.gguf"), tmp_path / "m.gguf"
    counts = np.array([32, 8, 0, 4])
    sums = {
        each.name: Sums(np.ones((each.shape[2], each.shape[0])), counts)
        for each in open_header(model).tensors
        if "_exps" in each.name
    }
    write_imatrix(
        matrix, Collected(sums=sums, dataset="", chunks=1, chunk_size=1, origin="")
    )  # fmt: skip
    asked = msgspec.structs.replace(options(tmp_path / "fit.gguf"), source=model)
    fit = BestFit(asked)

    def given(*_: Path) -> Generator[None, None, Path]:
        return matrix
        yield

    monkeypatch.setattr(fit, "_matrix", given)
    told = [str(getattr(event, "text", "")) for event in islice(fit.estimate(tmp_path), 7)]
    assert [text.removesuffix(": experts 2 got few tokens") for text in told[:6]] == sorted(sums)
    assert "hardly count: a broader --text" in told[6]


def test_a_recipe_makes_the_same_bytes(imatrix: Path, tmp_path: Path) -> None:
    """The file has the recipe's encodings and says so; with another matrix it is refused, and so
    is a recipe for another model."""
    header = open_header(MODEL_PATH)
    recipe = MixRecipe(
        format=1, type="Q3_K_M", encodings={Q: "Q6_K", UP: "F16"}, imatrix=imatrix.name,
        imatrix_sha256=digest(imatrix), dataset="text.txt", budget=7,
    )  # fmt: skip
    path, made = tmp_path / "a.recipe.json", [tmp_path / "a.gguf", tmp_path / "b.gguf"]
    write_recipe(path, recipe)
    again = read_recipe(path, header)
    assert again == recipe
    for threads, target in enumerate(made, 1):
        quantize(MODEL_PATH, target, again.type, threads=threads, options=again.options(imatrix))
    assert made[0].read_bytes() == made[1].read_bytes()
    found = {tensor.name: ENCODINGS[tensor.type].name for tensor in open_header(made[0]).tensors}
    assert (found[Q], found[UP], found["blk.1.attn_q.weight"]) == ("Q6_K", "F16", "Q3_K")
    keys = open_header(made[0]).keys
    assert keys["worker.fit.budget_bytes"] == "7"
    assert keys["worker.fit.imatrix_sha256"] == recipe.imatrix_sha256
    with pytest.raises(UsageError, match="is not the importance matrix of the recipe"):
        recipe.options(MODEL_PATH)
    write_recipe(path, msgspec.structs.replace(recipe, encodings={"blk.99.x.weight": "Q6_K"}))
    with pytest.raises(UsageError, match="for another model"):
        read_recipe(path, header)
    path.write_text("{")
    with pytest.raises(UsageError, match="is no recipe"):
        read_recipe(path, header)


def test_the_least_divergent_of_fit_and_presets_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mix of the least estimate competes with the presets of its size on the probes' text."""
    fit = BestFit(options(tmp_path / "fit.gguf"))
    tensor = next(each for each in fit.header.tensors if each.name == Q)
    estimate = Estimate({Q: tensor}, {Q: {"Q3_K": 3.0, "Q4_K": 2.0}}, {Q: 0.1}, 0)
    measured = iter(((0.2, 0.3), (0.3, 0.2)))
    preset = Mix(name="Q3_K_S", file_bytes=1, bits=3.4, estimate=0.3)

    def presets(*_: object) -> Generator[None, None, list[tuple[Mix, dict[str, str]]]]:
        return [(preset, {Q: "Q3_K", "output_norm.weight": "F32"})]
        yield

    def probed(*asked: object) -> Generator[None, None, list[float]]:
        assert asked[1] == ({Q: "Q4_K"}, {Q: "Q3_K"})
        return list(next(measured))
        yield

    monkeypatch.setattr(fit, "_presets", presets)
    monkeypatch.setattr(fit, "_probe", probed)
    for kind in ("Q4_K", "Q3_K"):
        chosen, rivals = returned(fit.choice(estimate, tmp_path, 50_000))
        assert chosen == {Q: kind}
        assert rivals == [preset]


def returned(events: Generator[object, None, T]) -> T:
    """What a generator returns."""
    while True:
        try:
            next(events)
        except StopIteration as end:
            return end.value


def test_groups_are_of_one_kind_in_neighbouring_layers() -> None:
    """One group of a kind at least, and each tensor by itself at most; in the encoding next to 3.5
    bits."""
    kinds: dict[str, tuple[str, ...]] = {
        f"blk.{layer}.a.weight": ("Q2_K", "Q3_K", "Q8_0") for layer in (10, 2, 0)
    }
    kinds["token_embd.weight"] = ("Q4_0", "Q8_0")
    embedding = {"token_embd.weight": "Q4_0"}
    first, middle, last = ({f"blk.{layer}.a.weight": "Q3_K"} for layer in (0, 2, 10))
    assert probe_groups(kinds, 1) == (embedding, first | middle | last)
    assert probe_groups(kinds, 2) == (embedding, first | middle, last)
    assert probe_groups(kinds, 9) == (embedding, first, middle, last)


def test_the_largest_harms_are_probed_in_each_encoding() -> None:
    """A tensor with more than a twentieth of the harm is, the largest first, if its probe had no
    other tensor; and not again in the encoding of that probe."""
    groups = ({"a": "Q3_K"}, {"b": "Q3_K"}, {"c": "Q3_K"}, {"d": "Q3_K", "e": "Q3_K"})
    made = (0.06, 0.3, 0.04, 0.6)
    kinds = dict.fromkeys("abcde", ("Q3_K", "Q4_K", "Q8_0"))
    every = ({"b": "Q4_K"}, {"b": "Q8_0"}, {"a": "Q4_K"}, {"a": "Q8_0"})
    assert large_probes(groups, made, kinds, 4) == every
    assert large_probes(groups, made, kinds, 3) == every[:2]


def test_a_size_that_no_mix_has_is_refused(imatrix: Path, tmp_path: Path) -> None:
    """Before anything is computed it names the smallest one, which is possible; nothing is left."""
    for matrix in (None, imatrix):
        asked = options(tmp_path / "fit.gguf", bits=None, nbytes=1 << 20, imatrix=matrix)
        with pytest.raises(UsageError, match=r"smallest one takes 1\.\d MiB") as refused:
            next(BestFit(asked).events())
        told = re.search(r"([\d.]+) bits per weight", str(refused.value))
        assert told is not None
        fit, least = BestFit(asked), float(told[1])
        fit.check_size(fit.bytes_of(least, None))
        with pytest.raises(UsageError, match="No mix of this model"):
            fit.check_size(fit.bytes_of(least - 0.02, None))
    assert not list(tmp_path.iterdir())


def test_a_text_without_a_part_to_measure_on_is_refused(tmp_path: Path) -> None:
    """Before anything is computed, but not in a dry run."""
    asked = msgspec.structs.replace(options(tmp_path / "fit.gguf"), texts=(TEXT[:3500],))
    with pytest.raises(UsageError, match=r"text\.txt is too short: .* 5,000 characters"):
        next(BestFit(asked).events())
    next(BestFit(msgspec.structs.replace(asked, dry_run=True)).events())


def test_little_memory_is_found_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what is needed."""
    few = Memory(total=64 << 20, available=32 << 20)
    monkeypatch.setattr("worker.machine.memory", lambda: few)
    with pytest.raises(DoesNotFitError, match=r"needs 1\d\d\.\d MiB of memory, 32\.0 MiB are"):
        next(BestFit(options(tmp_path / "fit.gguf")).events())


def test_a_full_disk_is_found_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fit and a preset beside it must have room, not for a dry run."""

    def free(_: Path) -> int:
        return 1 << 20

    monkeypatch.setattr("worker.files.free_bytes", free)
    with pytest.raises(DiskSpaceError, match="fit"):
        next(BestFit(options(tmp_path / "fit.gguf")).events())
    next(BestFit(options(tmp_path / "fit.gguf", dry_run=True)).events())


def test_a_matrix_of_another_model_is_refused(tmp_path: Path) -> None:
    """It says so before anything is probed, and nothing is left."""
    other = tmp_path / "other.gguf"
    sums = {"other.weight": Sums(np.ones((1, 4)), np.ones(1, np.int64))}
    write_imatrix(
        other, Collected(sums=sums, dataset="", chunks=1, chunk_size=1, origin="")
    )  # fmt: skip
    with pytest.raises(UsageError, match="has none of this model's tensors"):
        report_of(options(tmp_path / "fit.gguf", imatrix=other))
    assert list(tmp_path.iterdir()) == [other]


@pytest.mark.parametrize(
    ("name", "origin", "is_refused"),
    [
        ("fit.imatrix.gguf", "0a1b", True),
        ("fit.imatrix.gguf", "fit 1", False),
        ("fit.recipe.json", "", True),
    ],
)
def test_what_lies_beside_is_not_replaced(
    name: str, origin: str, is_refused: bool, tmp_path: Path
) -> None:
    """A recipe and a matrix of `worker imatrix` stay; what an interrupted fit left is replaced."""
    beside = tmp_path / name
    sums = {"other.weight": Sums(np.ones((1, 4)), np.ones(1, np.int64))}
    write_imatrix(
        beside, Collected(sums=sums, dataset="", chunks=1, chunk_size=1, origin=origin)
    )  # fmt: skip
    before = beside.read_bytes()
    events = BestFit(options(tmp_path / "fit.gguf")).events()
    if is_refused:
        with pytest.raises(UsageError, match=f"{name} exists already"):
            list(events)
    else:
        next(events)
        events.close()
    assert beside.read_bytes() == before or not is_refused


def test_the_context_leaves_its_rest_to_the_weights() -> None:
    """More cells leave less; a context that takes all is refused with the next step."""
    config, nbytes = load_config(MODEL_PATH), 300 << 20
    few, many = (
        weights_room(config, Settings(ctx_size=cells, parallel=1), nbytes) for cells in (512, 2048)
    )
    assert nbytes > few > many > 0
    with pytest.raises(UsageError, match="--ctx-size"):
        weights_room(config, Settings(ctx_size=2048, parallel=1), 1 << 20)


def test_the_memory_of_a_fit(tmp_path: Path) -> None:
    """The weights and rows of logits at least; what is quantized counts as F16."""
    config = load_config(MODEL_PATH)
    plain, narrow = (
        fit_memory(config, SETTINGS, window, is_quantized=False) for window in (512, 128)
    )
    assert 2 * config.n_params + 4 * 512 * config.vocab_size < narrow < plain
    config = load_config(ggufs.write_llama(tmp_path / "q8.gguf", layers=1, encoding="Q8_0"))
    more = [fit_memory(config, SETTINGS, 64, is_quantized=quantized) for quantized in (True, False)]
    assert more[0] - more[1] == pytest.approx(2 * config.n_params - config.size_bytes, rel=0.1)


def test_the_parts_of_an_estimate() -> None:
    """A probe that shows nothing has the least factor; a mix is named by its most weights; harm is
    factor times error, and nothing of what stays as it is."""
    groups = ({"a": "Q3_K"}, {"b": "Q3_K", "c": "Q3_K"})
    errors = {"a": {"Q3_K": 2.0}, "b": {"Q3_K": 1.0}, "c": {"Q3_K": 2.0}}
    factors = factors_of(groups, (0.4, -1e-9), errors)
    assert factors == {"a": 0.2, "b": 0.2, "c": 0.2}
    assert label_of({"a": "Q4_K", "b": "F16", "c": "Q6_K"}, {"a": 5, "b": 9, "c": 1}) == "Q4_K_M"
    tensor = next(each for each in open_header(MODEL_PATH).tensors if each.name == Q)
    estimate = Estimate({Q: tensor}, {Q: {"Q3_K": 3.0, "Q4_0": 4.0}}, {Q: 0.1}, 0)
    assert estimate.total({Q: "Q3_K"}) == pytest.approx(0.3)
    assert estimate.total({Q: "F16"}) == 0
    assert np.isnan(estimate.total({Q: "IQ1_S"}))
    assert [option.encoding for option in estimate.options[0]] == ["Q3_K", "F16"]


def test_every_third_piece_is_kept_for_the_measurement() -> None:
    """Pieces are whole lines; no line is in both parts, and none is lost."""
    lines = [f"{number:03} {'x' * 95}\n" for number in range(90)]
    first, rest = split_texts(("".join(lines), "short\n"))
    kept, used = rest.splitlines(keepends=True), first[0].splitlines(keepends=True)
    assert sorted(kept + used) == lines
    assert kept == lines[30:45] + lines[75:90]
    assert first[1] == "short\n"
