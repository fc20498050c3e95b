"""An adapter for each request, in one worker: each text is that of a worker with it alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.models.adapters import write_lora
from tests.support.programs.processes import Server, serving

NAMES = ("one", "two", "three")
BASE = "org/tiny"
START = "Once upon a time there was a king who had three sons and one of them said so"


@pytest.fixture(scope="module")
def files(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {
        name: write_lora(folder / f"{name}.gguf", tiny, seed)
        for seed, name in enumerate(NAMES, start=1)
    }


def options(tiny: Path, files: dict[str, Path], *names: str) -> list[Any]:
    lora = [word for name in names for word in ("--lora", f"{files[name]}={name}")]
    return ["--model", tiny, "--alias", BASE, "--ctx-size", "4096", *lora]


def say(server: Server, model: str, prompt: str) -> str:
    body = {"model": model, "prompt": prompt, "max_tokens": 24, "temperature": 0, "seed": 7,
            "ignore_eos": True}  # fmt: skip
    answer = server.post(body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def converse(server: Server, model: str, start: str, turns: int = 3) -> list[str]:
    """What is said in turn, each after all that was said before."""
    said: list[str] = []
    for turn in range(turns):
        start += say(server, model, start) + f" and then {turn} "
        said.append(start)
    return said


def test_conversations(tiny: Path, files: dict[str, Path]) -> None:
    """Eight at once, of the base and three adapters, two of each with one beginning, say what each
    says alone in a worker that knows nothing else."""
    alone: dict[str, list[list[str]]] = {}
    for model in (BASE, *NAMES):
        with serving(*options(tiny, files, *({model} & set(NAMES)))) as server:
            alone[model] = [converse(server, model, START + end) for end in ("", " again")]
    assert len({talk[0] for talks in alone.values() for talk in talks}) == 8
    with serving(*options(tiny, files, *NAMES), "--parallel", "8") as server:
        jobs = [(model, START + end) for end in ("", " again") for model in alone]
        with ThreadPoolExecutor(8) as pool:
            said = list(pool.map(lambda job: converse(server, *job), jobs))
        again = [converse(server, *job) for job in jobs[:4]]
    expected = [alone[model][place // 4] for place, (model, _) in enumerate(jobs)]
    assert said == expected
    assert again == expected[:4]
