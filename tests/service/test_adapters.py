"""An adapter for each request, in one worker: each text is that of a worker with it alone."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support import metrics
from tests.support.models.adapters import write_lora
from tests.support.programs.processes import Server, serving

NAMES = ("one", "two", "three")
BASE = "org/tiny"
Choice = str | list[dict[str, Any]]
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


def say(server: Server, choice: Choice, prompt: str = START) -> str:
    """What is said with a model, or with scales of adapters."""
    body = {
        **({"model": choice} if isinstance(choice, str) else {"lora": choice}),
        "prompt": prompt, "max_tokens": 24, "temperature": 0, "seed": 7, "ignore_eos": True,
    }  # fmt: skip
    answer = server.post(body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def converse(server: Server, choice: Choice, start: str, turns: int = 3) -> list[str]:
    """What is said in turn, each after all that was said before."""
    said: list[str] = []
    for turn in range(turns):
        start += say(server, choice, start) + f" and then {turn} "
        said.append(start)
    return said


def scaled(*scales: float) -> list[dict[str, Any]]:
    return [{"id": number, "scale": scale} for number, scale in enumerate(scales)]


# What eight conversations choose, and how a worker is started that knows nothing else.
SETS: list[tuple[Choice, list[str]]] = [
    (BASE, []),
    *((name, [f"--lora={{{name}}}"]) for name in NAMES),
    (scaled(0.5, 0.75), ["--lora-scaled={one}:0.5,{two}:0.75"]),
    (scaled(-1), ["--lora-scaled={one}:-1"]),
    (scaled(0, 1, 1), ["--lora={two},{three}"]),
    (scaled(0.25, 0.25, 0.25), ["--lora-scaled={one}:0.25,{two}:0.25,{three}:0.25"]),
]


@pytest.fixture(scope="module")
def alone(tiny: Path, files: dict[str, Path]) -> list[list[str]]:
    """What is said with each set where there is no other."""
    said: list[list[str]] = []
    for _, words in SETS:
        with serving(*options(tiny, files), *(word.format(**files) for word in words)) as server:
            said.append(converse(server, "", START))
    return said


@pytest.fixture(scope="module")
def server(tiny: Path, files: dict[str, Path]) -> Generator[Server]:
    with serving(*options(tiny, files, *NAMES), "--parallel", "8") as running:
        yield running


def test_they_differ(alone: list[list[str]]) -> None:
    assert len({said[0] for said in alone}) == len(SETS)


def test_conversations(server: Server, alone: list[list[str]]) -> None:
    """Eight at once, with the base, three adapters and mixed sets, begin alike, and each says what
    it says in a worker that knows nothing else; and again, from what is known of all."""
    choices = [choice for choice, _ in SETS]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(partial(converse, server, start=START), choices)) == alone
        assert list(pool.map(partial(converse, server, start=START), choices[::-1])) == alone[::-1]


@pytest.mark.parametrize(
    "more", [["--cache-ram", "0"], ["--draft", "ngram"], ["-np", "2"]], ids=" ".join
)
def test_in_other_workers(
    tiny: Path, files: dict[str, Path], alone: list[list[str]], more: list[str]
) -> None:
    """The same without host memory, with guesses, and where most of them wait."""
    with (
        serving(*options(tiny, files, *NAMES), *more.split()) as server,
        ThreadPoolExecutor(8) as pool,
    ):
        choices = [choice for choice, _ in SETS]
        assert list(pool.map(partial(converse, server, start=START), choices)) == alone


def test_after_a_restart(
    tiny: Path, files: dict[str, Path], alone: list[list[str]], tmp_path: Path
) -> None:
    """What is found on disk is found by its own set alone, whatever the numbers are now."""
    disk = ["--cache-dir", tmp_path, "--ctx-size", "2048"]
    choices = [choice for choice, _ in SETS]
    for names in (NAMES, NAMES[::-1]):
        numbers = [names.index(name) for name in NAMES]
        with serving(*options(tiny, files, *names), *disk) as server:
            for choice, expected in zip(choices, alone, strict=True):
                if isinstance(choice, list):
                    choice = [{**each, "id": numbers[each["id"]]} for each in choice]
                assert converse(server, choice, START) == expected
            read = metrics.scrape(server.url)["worker_cache_disk_read_bytes_total"]
            assert (read > 0) == (names != NAMES)
