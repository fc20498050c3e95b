"""lm-eval's three modes over a real worker: its scores are those of the engine in process."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from checks.clients.installed import PROGRAMS, interpreter, needs_clients, run
from tests.support.programs.processes import serving
from worker.demo import HELDOUT_PATH, MODEL_PATH
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions

QUESTIONS: list[dict[str, Any]] = [
    {"question": "Once upon a", "choices": ["time", "shell", "goose in the park"], "answer": 0},
    {"question": "What is 3 plus 4? 3 plus 4 is", "choices": ["6.", "7."], "answer": 1},
]
MOST = 12  # tokens of a generated answer

pytestmark = needs_clients


def tasks(folder: Path, texts: list[str]) -> dict[str, dict[str, Any]]:
    """Three tasks over files in this folder; JSON is YAML."""
    files = {"choices": QUESTIONS, "texts": [{"text": text} for text in texts]}
    for name, rows in files.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))

    def task(file: str, **fields: Any) -> dict[str, Any]:
        data = {"data_files": {"test": str(folder / f"{file}.json")}}
        return {"dataset_path": "json", "dataset_kwargs": data, "test_split": "test", **fields}

    return {
        "choose": task(
            "choices", output_type="multiple_choice", doc_to_text="question",
            doc_to_choice="choices", doc_to_target="answer", metric_list=[{"metric": "acc"}],
        ),
        "read": task(
            "texts", output_type="loglikelihood_rolling", doc_to_text="", doc_to_target="text",
            metric_list=[{"metric": "word_perplexity"}],
        ),
        "write": task(
            "choices", output_type="generate_until", doc_to_text="question", doc_to_target="answer",
            generation_kwargs={"until": ["\n", "."], "max_gen_toks": MOST},
            metric_list=[{"metric": "exact_match"}],
        ),
    }  # fmt: skip


class InProcess:
    """The demo model, asked without HTTP."""

    def __init__(self, backend: LlamaBackend) -> None:
        self._backend = backend
        self._engine = Engine(backend, time.monotonic)

    def ids(self, text: str) -> list[int]:
        return self._backend.vocab.tokenize(text, add_special=False, parse_special=True)

    def _ask(self, prompt: list[int], **fields: Any) -> list[Any]:
        greedy = SamplingParams(temperature=0)
        self._engine.add(
            Request(
                id="a",
                prompt=Prompt(tuple(prompt)),
                params=GenerationParams(sampling=greedy, **fields),
            )
        )
        deltas: list[Any] = []
        while not self._engine.is_idle:
            deltas += self._engine.step()
        return deltas

    def scores(self, ids: list[int]) -> list[float]:
        """The logprob of each token but the first."""
        deltas = self._ask(ids, max_tokens=0, prompt_logprobs=0)
        return [score.logprob for score in deltas[-1].prompt_logprobs]

    def answer(self, ids: list[int]) -> str:
        deltas = self._ask(ids, max_tokens=MOST, stop=("\n", "."))
        return "".join(delta.text for delta in deltas)


def test_three_modes(tmp_path: Path) -> None:
    """Choices by their scores, a text's perplexity, answers up to a stop text."""
    texts = HELDOUT_PATH.read_text().split("\n\n")[:2]
    for name, fields in tasks(tmp_path, texts).items():
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"task": name, **fields}))
    program = PROGRAMS / "lm_eval_scores.py"
    with serving("--ctx-size", "4096", "-np", "2") as server:
        said = run(
            interpreter("lm_eval"), program, server.url, tmp_path, "choose", "read", "write",
            HF_HOME=str(tmp_path / "home"), HF_HUB_OFFLINE="1",
        )  # fmt: skip
    found = json.loads(said.splitlines()[-1])["samples"]
    options = ContextOptions(num_cells=2048, num_slots=1)
    with LlamaBackend.open(MODEL_PATH, LoadOptions(n_gpu_layers=0), options) as backend:
        mine = InProcess(backend)
        for question, choices in zip(QUESTIONS, found["choose"], strict=True):
            context = len(mine.ids(question["question"]))
            for choice, [(score, _)] in zip(question["choices"], choices, strict=True):
                ids = mine.ids(f"{question['question']} {choice}")
                assert score == pytest.approx(sum(mine.scores(ids)[context - 1 :]), abs=1e-3)
        for text, [[score]] in zip(texts, found["read"], strict=True):
            assert backend.vocab.bos is not None
            ids = [backend.vocab.bos, *mine.ids(text)]
            assert score == pytest.approx(sum(mine.scores(ids)), rel=1e-4)
        for question, [[text]] in zip(QUESTIONS, found["write"], strict=True):
            assert text == mine.answer(mine.ids(question["question"]))
            assert text
