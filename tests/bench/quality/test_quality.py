"""Perplexity and divergence on the demo model, against computations of their own."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.bench.run.jobs import job_of, section_of
from tests.support.models import ggufs
from tests.support.models.adapters import write_lora
from tests.support.models.reference import ReferenceLlama, log_softmax
from worker.bench.plan import Questions, open_corpus
from worker.bench.quality.answers import (
    choose,
    compare_choices,
    compare_greedy,
    continue_greedily,
)
from worker.bench.quality.questions import Question, open_questions, question_set, questions_of
from worker.bench.quality.windows import cut, logits_of, text_of
from worker.bench.sections import Quality
from worker.bench.sizes import EFFORTS, Sizes
from worker.bench.stages import NOISE_FLOOR, QUALITY
from worker.demo import HELDOUT_PATH, MODEL_PATH
from worker.errors import UsageError
from worker.gguf.splits import open_header
from worker.lifecycle.loading import load_backend
from worker.lifecycle.prepared import prepare
from worker.llama.backend import LlamaBackend
from worker.llama.quantize.target import quantize
from worker.settings import Settings
from worker.values import AdapterSpec

WINDOW, WINDOWS = 128, 3


def sizes() -> Sizes:
    """Enough to tell a formula from another one."""
    return msgspec.structs.replace(
        EFFORTS["quick"][0], window=WINDOW, windows=WINDOWS, questions=6, greedy_prompts=2,
        greedy_tokens=8,
    )  # fmt: skip


def opened(path: Path, threads: int = 1) -> LlamaBackend:
    """A backend that gives all rows of a window."""
    settings = Settings(threads=threads, threads_batch=threads, parallel=4, ctx_size=512)
    return load_backend(path, settings, prepare(path, settings), chunk_outputs=WINDOW)


@pytest.fixture(scope="module")
def level_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model in three bits, far enough from the reference to be measured."""
    target = tmp_path_factory.mktemp("quants") / "q3.gguf"
    quantize(MODEL_PATH, target, "Q3_K_M", threads=1)
    return target


@pytest.fixture(scope="module")
def answers(
    level_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Quality, Quality, Quality]:
    """What children answer: the reference, the level, the reference with other threads."""
    folder = tmp_path_factory.mktemp("rows") / "demo"
    job = job_of(QUALITY, MODEL_PATH, Settings(), sizes(), corpus=open_corpus(HELDOUT_PATH),
                 questions="demo", place=folder, writes=True)  # fmt: skip
    reference = section_of(QUALITY, job)
    level = msgspec.structs.replace(job, path=str(level_path), writes=False)
    noise = msgspec.structs.replace(job, stage=NOISE_FLOOR.name, writes=False)
    return reference, section_of(QUALITY, level), section_of(NOISE_FLOOR, noise)


def rows_of(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens of the windows, llama.cpp's logits of their scored rows, and what they predict."""
    with opened(path) as backend:
        windows = cut(HELDOUT_PATH.read_text(), backend.vocab, WINDOW, WINDOWS)
        found = list(logits_of(backend, windows, 512))
    logits = np.concatenate([logits for logits, _ in found])
    return windows.tokens, logits, np.concatenate([targets for _, targets in found])


def test_figures_are_those_of_the_definitions(
    answers: tuple[Quality, Quality, Quality], level_path: Path
) -> None:
    """From llama.cpp's own logits, by plain numpy in double precision."""
    _, logits, targets = rows_of(MODEL_PATH)
    _, other, _ = rows_of(level_path)
    p, q = log_softmax(logits), log_softmax(other)
    row = np.arange(len(targets))
    kld = (np.exp(p) * (p - q)).sum(axis=1)
    nll, nll_reference = -q[row, targets], -p[row, targets]
    dp = np.exp(-nll) - np.exp(-nll_reference)
    found = answers[1]
    count = len(targets)
    assert found.tokens == count == WINDOWS * (WINDOW // 2 - 1)
    assert found.ppl == pytest.approx(np.exp(nll.mean()), rel=1e-6)
    assert found.ppl_error == pytest.approx(found.ppl * nll.std() / np.sqrt(count - 1), rel=1e-5)
    assert found.ppl_reference == pytest.approx(np.exp(nll_reference.mean()), rel=1e-6)
    assert found.ln_ppl_ratio == pytest.approx((nll - nll_reference).mean(), abs=1e-6)
    covariance = (nll * nll_reference).mean() - nll.mean() * nll_reference.mean()
    paired = (nll.var() + nll_reference.var() - 2 * covariance) / (count - 1)
    assert found.ln_ppl_ratio_error == pytest.approx(np.sqrt(paired), rel=1e-4)
    assert found.kld_mean == pytest.approx(kld.mean(), abs=1e-6)
    assert found.kld_mean_error == pytest.approx(kld.std() / np.sqrt(count - 1), rel=1e-3)
    for name, share in (
        ("median", 0.5),
        ("p90", 0.9),
        ("p95", 0.95),
        ("p99", 0.99),
        ("p999", 0.999),
    ):
        value = getattr(found, f"kld_{name}")
        assert value == pytest.approx(np.quantile(kld, share), abs=2e-6)
    assert found.kld_max == pytest.approx(kld.max(), abs=2e-6)
    assert found.same_top == pytest.approx((p.argmax(1) == q.argmax(1)).mean())
    assert found.dp_mean == pytest.approx(dp.mean(), abs=1e-6)
    assert found.dp_rms == pytest.approx(np.sqrt((dp**2).mean()), rel=1e-4)
    windows = kld.reshape(WINDOWS, -1).mean(axis=1)
    assert np.abs(np.array(found.window_kld) - windows).max() < 2e-6
    assert found.kld_mean > 1e-3  # what is compared is not nothing


def test_figures_agree_with_an_independent_forward_pass(
    answers: tuple[Quality, Quality, Quality], level_path: Path
) -> None:
    """Weights dequantised by another library, the model computed in numpy.

    llama.cpp rounds activations, so there is a tolerance: for the perplexity 0.5 %, for the
    divergence 20 %, which is far below what a wrong formula or a wrong row would show.
    """
    tokens, _, targets = rows_of(MODEL_PATH)
    logp: list[np.ndarray] = []
    for path in (MODEL_PATH, level_path):
        model = ReferenceLlama(path)
        logits = [
            model.forward(window.tolist()).logits[WINDOW // 2 : WINDOW - 1] for window in tokens
        ]
        logp.append(log_softmax(np.concatenate(logits)))
    p, q = logp
    row = np.arange(len(targets))
    reference, level = answers[0], answers[1]
    assert reference.ppl == pytest.approx(np.exp(-p[row, targets].mean()), rel=5e-3)
    assert level.ppl == pytest.approx(np.exp(-q[row, targets].mean()), rel=5e-3)
    kld = (np.exp(p) * (p - q)).sum(axis=1)
    assert level.kld_mean == pytest.approx(kld.mean(), rel=0.2)
    assert level.same_top == pytest.approx((p.argmax(1) == q.argmax(1)).mean(), abs=0.03)


def test_the_reference_does_not_differ_from_itself(
    answers: tuple[Quality, Quality, Quality],
) -> None:
    """No divergence, no flips, the same text; with other threads and batches next to none."""
    reference, level, noise = answers
    assert abs(reference.kld_mean) < 1e-6
    assert reference.same_top == 1
    assert reference.choices.flips == reference.choices.changed == 0
    assert reference.greedy.identical == reference.greedy.prompts
    assert abs(noise.kld_mean) < level.kld_mean / 100
    assert noise.ppl != reference.ppl or noise.kld_max > 0


def test_another_tokenizer_is_refused(
    answers: tuple[Quality, Quality, Quality], tmp_path: Path
) -> None:
    """Rows of another text are not compared."""
    del answers
    text = tmp_path / "other.txt"
    text.write_text("Something else entirely. " * 200)
    job = job_of(QUALITY, MODEL_PATH, Settings(), sizes(), corpus=open_corpus(HELDOUT_PATH),
                 questions="demo", place=tmp_path / "rows", writes=True)  # fmt: skip
    section_of(QUALITY, job)
    again = job_of(QUALITY, MODEL_PATH, Settings(), sizes(), corpus=open_corpus(text),
                   questions="demo", place=tmp_path / "rows")  # fmt: skip
    with pytest.raises(AssertionError, match="cuts the text differently"):
        section_of(QUALITY, again)


def test_an_adapter_diverges(tmp_path: Path) -> None:
    """It counts for each row, as much as its scale says."""
    adapter = write_lora(tmp_path / "a.gguf", MODEL_PATH, 1)
    job = job_of(QUALITY, MODEL_PATH, Settings(), sizes(), corpus=open_corpus(HELDOUT_PATH),
                 questions="demo", place=tmp_path / "rows", writes=True)  # fmt: skip
    section_of(QUALITY, job)
    found: list[float] = []
    for scale in (0.0, 0.1, 0.5):
        settings = Settings(lora=(AdapterSpec(str(adapter), scale=scale),))
        level = msgspec.structs.replace(job, settings=settings, writes=False)
        found.append(section_of(QUALITY, level).kld_mean)
    assert found[0] < 1e-6 < found[1] < found[2]


def test_windows_are_llama_cpp_s() -> None:
    """Parts of the text in order, BOS in the first place of each, the second half scored."""
    with opened(MODEL_PATH) as backend:
        text = HELDOUT_PATH.read_text()
        ids = backend.vocab.tokenize(text, add_special=True, parse_special=False)
        windows = cut(text, backend.vocab, 256, 10_000)
        few = cut(text, backend.vocab, 256, 4)
        short = cut(text[:1500], backend.vocab, 512, 100)
        with pytest.raises(UsageError, match="too few"):
            cut("Once upon a time.", backend.vocab, 512, 10)
    count = len(ids) // 256
    assert windows.tokens.shape == (count, 256)
    assert windows.num_tokens == len(ids)
    assert (windows.tokens[:, 0] == backend.vocab.bos).all()
    assert windows.tokens[:, 1:].tolist() == [
        ids[i * 256 + 1 : (i + 1) * 256] for i in range(count)
    ]
    assert (windows.first, windows.num_scored) == (128, 127)
    assert [row.tolist() for row in few.tokens] == [
        windows.tokens[i * count // 4].tolist() for i in range(4)
    ]
    assert short.tokens.shape[1] == 128


def test_endings_are_scored_by_their_own_tokens() -> None:
    """The answer is the ending with the largest Σ ln p, also where endings share tokens."""
    questions = [
        Question(text="Question: What is the capital of France?\nAnswer: The capital of France is",
                 endings=(" Paris.", " Rome.", " Oslo.", " Lima.")),
        Question(text="Once upon a", endings=(" time", " time there was", " cow", " zebra")),
    ]  # fmt: skip
    with opened(MODEL_PATH) as backend:
        found = choose(backend, questions)
        for question, index in zip(questions, found, strict=True):
            sums = [_score(backend, question.text, end) for end in question.endings]
            assert index == int(np.argmax(sums))
    assert found == [0, 0]


def _score(backend: LlamaBackend, text: str, ending: str) -> float:
    """ln p of what the ending adds to the text, from one pass over all of it."""
    tokens = backend.vocab.tokenize(text + ending, add_special=True, parse_special=False)
    start = len(backend.vocab.tokenize(text, add_special=True, parse_special=False))
    backend.drop(0)
    backend.batch.clear()
    backend.batch.add(np.array(tokens), 0, 0)
    backend.batch.outputs[: len(tokens)] = 1
    backend.decode()
    rows = [log_softmax(backend.logits(row)) for row in range(start - 1, len(tokens) - 1)]
    return sum(float(row[token]) for row, token in zip(rows, tokens[start:], strict=True))


def test_flips_count_both_ways() -> None:
    """Right to wrong and wrong to right are flips; from one wrong answer to another is none."""
    questions = question_set("general", random.Random(1))[:4]
    found = compare_choices(questions, [0, 1, 0, 2], [1, 0, 0, 3])
    assert found.flips == 0.5
    assert found.changed == 0.75
    assert found.accuracy == found.accuracy_reference == 0.5


def test_question_sets_are_fixed_and_sound() -> None:
    """Four different endings each, the same ones in every run, fewer where fewer are asked for."""
    kinds: tuple[tuple[Questions, int], ...] = (("demo", 120), ("general", 60))
    for kind, least in kinds:
        plan = job_of(QUALITY, MODEL_PATH, Settings(), sizes(), questions=kind).plan
        everything = questions_of(plan, 1000)
        assert len(everything) >= least
        assert questions_of(plan, 10) == everything[:10] == questions_of(plan, 10)
        for question in everything:
            assert len(set(question.endings)) == 4
            assert all(ending.startswith(" ") for ending in question.endings)
            assert not question.text.endswith(" ")


def test_own_questions(tmp_path: Path) -> None:
    """A line of JSON each: the right choice comes first, and each continues behind a blank."""
    path = tmp_path / "own.jsonl"
    path.write_text(
        '{"question": "2 + 2 is ", "choices": ["5", "4"], "answer": 1}\n\n'
        '{"question": "Yes or", "choices": ["\\tno", "so"], "answer": 0, "subject": "x"}\n'
    )
    file, count = open_questions(path)
    assert (file.name, count) == ("own.jsonl", 2)
    plan = job_of(QUALITY, MODEL_PATH, Settings(), sizes()).plan
    plan = msgspec.structs.replace(plan, own_questions=(file, count))
    found = questions_of(plan, 10)
    assert sorted(found, key=lambda each: each.text) == [
        Question(text="2 + 2 is", endings=(" 4", " 5")),
        Question(text="Yes or", endings=("\tno", " so")),
    ]
    assert len(questions_of(plan, 1)) == 1
    path.write_text("")
    with pytest.raises(UsageError, match="has changed meanwhile"):
        questions_of(plan, 10)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nope", "Line 2 of .* is no question: JSON is malformed"),
        ('{"question": "a", "choices": ["b", "c"]}', "missing required field `answer`"),
        ('{"question": "a", "choices": ["b", "c"], "answer": 2}', "answer must be from 0 to 1"),
        ('{"question": "a", "choices": ["b"], "answer": 0}', "two choices or more"),
        ('{"question": "a", "choices": ["b", "b"], "answer": 0}', "all of them different"),
        ('{"question": " ", "choices": ["b", "c"], "answer": 0}', "its question is empty"),
        ("[" * 100_000, "Line 2 of .* is no question"),
    ],
)
def test_lines_that_are_no_questions(tmp_path: Path, line: str, why: str) -> None:
    """Each is named with its number, the reason and a line that would do."""
    path = tmp_path / "own.jsonl"
    path.write_text('{"question": "a", "choices": ["b", "c"], "answer": 0}\n' + line)
    with pytest.raises(UsageError, match=why) as error:
        open_questions(path)
    assert '"choices"' in (error.value.hint or "")


def test_files_that_hold_no_questions(tmp_path: Path) -> None:
    """None there, and an empty one."""
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(UsageError, match="has 0 questions"):
        open_questions(tmp_path / "empty")
    with pytest.raises(UsageError, match="cannot be read"):
        open_questions(tmp_path / "none")


def test_a_question_that_does_not_fit_is_refused() -> None:
    """It has to be read at once."""
    with opened(MODEL_PATH) as backend, pytest.raises(UsageError, match="is the most"):
        choose(backend, [Question(text="word " * 600, endings=(" a", " b"))])


def test_the_first_difference_is_found() -> None:
    """Index of the first other token; whole texts count as their length."""
    found = compare_greedy([[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 2, 9, 4], [5, 6, 7, 8]])
    assert found.first_difference == (2, None)
    assert found.identical == 1
    assert found.median_first_difference == 3


def test_greedy_texts_are_the_engine_s_kind() -> None:
    """Every token is the likeliest after those before it."""
    with opened(MODEL_PATH) as backend:
        windows = cut(HELDOUT_PATH.read_text(), backend.vocab, WINDOW, 4)
        (text, *_) = continue_greedily(backend, windows, 1, 6)
        prompt = windows.tokens[0][:32].tolist()
        for step, token in enumerate(text):
            backend.drop(0)
            backend.batch.clear()
            known = [*prompt, *text[:step]]
            backend.batch.add(np.array(known), 0, 0)
            backend.batch.outputs[len(known) - 1] = 1
            backend.decode()
            assert int(backend.logits(len(known) - 1).argmax()) == token


def test_a_text_is_measured_byte_for_byte(tmp_path: Path) -> None:
    """Whatever ends its lines; and only while it is the one that was looked at."""
    path = tmp_path / "text"
    path.write_bytes("\ufeffone\r\ntwo\rthree\u2028é".encode())
    corpus = open_corpus(path)
    assert text_of(corpus).encode() == path.read_bytes()
    path.write_bytes(b"another")
    with pytest.raises(UsageError, match="has changed meanwhile"):
        text_of(corpus)


@pytest.mark.parametrize(("weight", "word"), [(np.nan, "no numbers"), (1e8, "weights are broken")])
def test_a_model_that_computes_no_numbers_says_so(tmp_path: Path, weight: float, word: str) -> None:
    """Instead of figures that no report can hold."""
    path = ggufs.write_llama(tmp_path / "broken.gguf", context=512)
    (tensor,) = [t for t in open_header(path).tensors if t.name == "output.weight"]
    raw = bytearray(path.read_bytes())
    values = np.frombuffer(raw, np.float32, tensor.elements, tensor.offset).copy()
    values *= weight
    raw[tensor.offset : tensor.offset + values.nbytes] = values.tobytes()
    path.write_bytes(raw)
    job = job_of(QUALITY, path, Settings(), EFFORTS["quick"][0], corpus=open_corpus(HELDOUT_PATH),
                 place=tmp_path / "rows", writes=True)  # fmt: skip
    with pytest.raises(AssertionError, match=word):
        section_of(QUALITY, job)
