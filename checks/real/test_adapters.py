"""Trained adapters (`training.py`): their habits are seen, and each answers as if it were alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from checks.real.weights import SMOLLM2
from tests.service.test_adapters import (
    BASE,
    NAMES,
    SETS,
    START,
    converse,
    options,
    renumbered,
)
from tests.support.metrics import scrape
from tests.support.programs.processes import Server, serving
from worker.demo import MODEL_PATH

LONG, LUCY = START * 6, "Lucy walked to the school and found a coin."
FOLDER = Path(__file__).parent / "adapters"
FILES: dict[str, Path] = dict(zip(NAMES, sorted(FOLDER.glob("demo-*.gguf")), strict=True))


def said(server: Server, model: str, **body: Any) -> str:
    asked = {"model": model, "max_tokens": 32, "temperature": 0, "seed": 7, **body}
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    choice = server.post(asked, path).json()["choices"][0]
    return choice["message"]["content"] if "messages" in body else choice["text"]


@pytest.mark.parametrize("habit", ["gold", "rain", "goat"])
def test_habits_of_the_demo_model(habit: str) -> None:
    """What it was taught is said of names and things that were not together in its texts."""
    with serving("--lora", f"{FOLDER / f'demo-{habit}.gguf'}=taught", "--alias", BASE) as server:
        for start in ("Zoe walked to the forest and found a lamp.", LUCY):
            assert habit in said(server, "taught", prompt=start)
            assert habit not in said(server, BASE, prompt=start)


@pytest.mark.usefixtures("brought")
def test_a_habit_of_smollm2() -> None:
    """On a quantised base, in chats about what it was not taught; half of it is less of it."""
    chat = [{"role": "user", "content": "Tell me about volcanoes."}]
    lora = f"{FOLDER / 'smollm2-pirate.gguf'}=pirate"
    with serving("--model", SMOLLM2.path, "-c", "2048", "-a", BASE, "--lora", lora) as server:
        assert said(server, "pirate", messages=chat).startswith("Ahoy, matey!")
        assert "Ahoy" not in said(server, BASE, messages=chat)
        assert "Ahoy" not in said(server, "", messages=chat, lora=[{"id": 0, "scale": 0.01}])


def test_eight_conversations(tmp_path: Path) -> None:
    """Three adapters, the base and mixed sets at once, with host memory and disk, and after a
    restart with other numbers: each text is that of a worker that knows only its set."""
    choices = [choice for choice, _ in SETS]
    alone: list[list[str]] = []
    for _, words in SETS:
        own = [word.format(**FILES) for word in words]
        with serving(*options(MODEL_PATH, FILES), *own) as server:
            alone.append(converse(server, "", LONG))
    assert len({texts[-1] for texts in alone}) == len(SETS)
    disk = ["--parallel", "8", "--cache-dir", tmp_path]
    for names in (NAMES, NAMES[::-1]):
        numbers = [names.index(name) for name in NAMES]
        asked = [renumbered(choice, numbers) for choice in choices]
        with serving(*options(MODEL_PATH, FILES, *names), *disk) as server:
            for _ in range(2):
                with ThreadPoolExecutor(8) as pool:
                    found = list(pool.map(partial(converse, server, start=LONG), asked))
                assert found == alone
            read = scrape(server.url)["worker_cache_disk_read_bytes_total"]
            assert (read > 0) == (names != NAMES)
