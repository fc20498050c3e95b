"""A worker with a draft model or heads: what it says, what it counts, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.answers import COMPLETIONS, EXACT, answer, bodies, check_same
from tests.support.metrics import scrape
from tests.support.models import drafters, ggufs
from tests.support.models.adapters import write_lora
from tests.support.models.heads import WRITERS
from tests.support.programs.processes import Server, ended, guessing, serving
from worker.demo import MODEL_PATH

BODY: dict[str, Any] = {
    "prompt": [1, *range(5, 25)], "max_tokens": 60, "temperature": 0, "ignore_eos": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def drafted(tiny: Path) -> Generator[Server]:
    """A model that drafts for itself."""
    with guessing("--model", tiny, "--draft-model", tiny, "-c", "2048", "-t", "1") as server:
        yield server


def test_replies_and_metrics_count(drafted: Server) -> None:
    """`timings` of the replies and the counters say how many tokens were guessed, and rightly."""
    timings = [drafted.post(BODY).json()["timings"] for _ in range(3)]
    guessed = sum(found["draft_n"] for found in timings)
    right = sum(found["draft_n_accepted"] for found in timings)
    assert 0 < right <= guessed
    counters = scrape(drafted.url)
    assert counters["worker_draft_tokens_total"] == guessed
    assert counters["worker_draft_tokens_accepted_total"] == right


def test_it_is_told(drafted: Server, tiny: Path) -> None:
    """/info names the draft model, /slots says that guesses are made."""
    info = http.get(f"{drafted.url}/info").json()
    assert (info["draft"], info["draft_model"]) == ("auto", tiny.stem)
    assert all(slot["speculative"] for slot in http.get(f"{drafted.url}/slots").json())


def test_an_eagle_drafter(tmp_path: Path) -> None:
    """It guesses beside its model; commands say for which one it is, and that it fits."""
    target = drafters.write_target(tmp_path / "target.gguf")
    eagle = drafters.write_eagle(tmp_path / "eagle.gguf")
    with guessing("--model", target, "-md", eagle, "--draft", "model", "-c", "2048") as server:
        timings = [server.post(BODY).json()["timings"] for _ in range(3)]
        assert sum(found["draft_n_accepted"] for found in timings) > 0
        assert http.get(f"{server.url}/info").json()["draft_model"] == "eagle"
    shown = ended("show", eagle)
    assert "hidden states of 64 elements" in " ".join(shown.stdout.split())
    assert ended("check", target, "--draft-model", eagle).returncode == 0
    plan = json.loads(ended("plan", target, "-md", eagle, "--json").stdout)
    assert plan["draft_bytes"] > eagle.stat().st_size


def test_a_dflash_drafter(tmp_path: Path) -> None:
    """It guesses beside its model, also under llama-server's name for it, and after sleep; commands
    say for which model it is, and that it fits."""
    target = drafters.write_target(tmp_path / "target.gguf", marked=True, noise=0.9)
    dflash = drafters.write_dflash(tmp_path / "dflash.gguf")
    words = ("-md", dflash, "--spec-type", "draft-dflash", "-c", "2048", "-np", "2")
    with guessing("--model", target, *words) as server:
        info = http.get(f"{server.url}/info").json()
        assert (info["draft"], info["draft_model"]) == ("model", "dflash")
        for _ in range(2):
            timings = [server.post(BODY).json()["timings"] for _ in range(3)]
            assert sum(found["draft_n_accepted"] for found in timings) > 0
            server.post({}, "/sleep")
    shown = " ".join(ended("show", dflash).stdout.split())
    assert "hidden states of 64 elements and 320 tokens, of which it reads layers 0, 1, 2" in shown
    assert "5 tokens at once" in shown
    assert ended("check", target, "--draft-model", dflash).returncode == 0
    plan = json.loads(ended("plan", target, "-md", dflash, "--json").stdout)
    assert plan["draft_bytes"] > dflash.stat().st_size


def test_an_assistant(tmp_path: Path) -> None:
    """It guesses beside its model, also under llama-server's name for it, and after sleep; commands
    say for which model it is, and that it fits."""
    target = drafters.write_gemma4(tmp_path / "target.gguf")
    assistant = drafters.write_assistant(tmp_path / "assistant.gguf")
    words = ("-md", assistant, "--spec-type", "draft-mtp", "-c", "2048", "-np", "2")
    with guessing("--model", target, *words) as server:
        info = http.get(f"{server.url}/info").json()
        assert (info["draft"], info["draft_model"]) == ("model", "assistant")
        for _ in range(2):
            timings = [server.post(BODY).json()["timings"] for _ in range(3)]
            assert sum(found["draft_n_accepted"] for found in timings) > 0
            server.post({}, "/sleep")
    shown = " ".join(ended("show", assistant).stdout.split())
    assert "hidden states of 64 elements and 320 tokens" in shown
    assert "the cells of its last layers" in shown
    assert ended("check", target, "--draft-model", assistant).returncode == 0
    plan = json.loads(ended("plan", target, "-md", assistant, "--json").stdout)
    assert plan["draft_bytes"] > assistant.stat().st_size


def test_an_eagle_drafter_and_the_same_prompt(tmp_path: Path) -> None:
    """A cached prompt's last token, computed again, gives the drafter no state that it lacks."""
    target = drafters.write_target(tmp_path / "target.gguf")
    eagle = drafters.write_eagle(tmp_path / "eagle.gguf")
    body = {"prompt": [5, 6, 7, 8, 9], "max_tokens": 40, "temperature": 0}
    with serving("--model", target, "-md", eagle, "-c", "512", "-np", "2") as server:
        texts = {server.post(body, "/v1/completions").json()["choices"][0]["text"] for _ in "123"}
        assert len(texts) == 1


def test_an_eagle_drafter_and_all_that_befalls_a_model(tmp_path: Path) -> None:
    """With an adapter, after sleep, and behind a slot that was saved, erased and restored it goes
    on guessing, and each text is that without it."""
    target = drafters.write_target(tmp_path / "target.gguf", noise=0.9)
    eagle = drafters.write_eagle(tmp_path / "eagle.gguf")
    adapter = write_lora(tmp_path / "a.gguf", target, 1)
    options = ("--model", target, "-c", "2048", "-np", "2", *EXACT, "--lora", f"{adapter}=a:0.05",
               "--slot-save-path", tmp_path)  # fmt: skip

    def replies(*who: str | Path) -> list[tuple[str, int]]:
        """Texts, and draft tokens that were accepted."""
        found: list[tuple[str, int]] = []
        with guessing(*options, *who) as server:

            def say(**more: Any) -> int:
                body = BODY | {"n_predict": 60, "id_slot": 1} | more
                reply = server.post(body, "/completion").json()
                timings = reply["timings"]
                found.append((reply["content"], timings.get("draft_n_accepted", 0)))
                return timings["cache_n"]

            for scale in (0.0, 1.0):
                say(lora=[{"id": 0, "scale": scale}])
            server.post({}, "/sleep")
            say(lora=[])
            for action in ("save", "erase", "restore"):
                answer = server.post({"filename": "slot"}, f"/slots/1?action={action}")
                assert answer.status_code == 200
            assert say(lora=[], prompt=[*BODY["prompt"], 99]) > 10
        return found

    plain, guessed = replies("--draft", "none"), replies("-md", eagle, "--draft", "model")
    assert plain[0] != plain[1]
    assert [text for text, _ in plain] == [text for text, _ in guessed]
    assert not any(accepted for _, accepted in plain)
    assert all(accepted for _, accepted in guessed)


@pytest.mark.parametrize(
    ("writer", "why", "kind"),
    [
        (drafters.write_eagle, "it reads layer 2", "a model"),
        (drafters.write_dflash, "it reads layer 2", "a model"),
        (drafters.write_assistant, "it looks at cells of gemma4 models", "a Gemma 4 model"),
    ],
)
def test_a_drafter_of_another_model_is_refused(
    writer: Callable[[Path], Path], why: str, kind: str, tiny: Path, tmp_path: Path
) -> None:
    """It exits with 2 before anything is loaded; one served alone says what it drafts for."""
    drafter = writer(tmp_path / "drafter.gguf")
    done = ended("serve", "--model", tiny, "-md", drafter, "--port", "0")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert f"drafter.gguf cannot draft tokens for tiny.gguf: {why}" in last
    checked = ended("check", tiny, "--draft-model", drafter)
    assert checked.returncode == 1
    assert why in " ".join(checked.stdout.split())
    asked = ended("serve", "--model", tiny, "-md", tiny, "--spec-type", "draft-mtp")
    assert asked.returncode == 2
    assert "--draft mtp does not use the draft model" in asked.stderr
    alone = ended("serve", "--model", drafter, "--port", "0")
    assert alone.returncode == 2
    said = f"only draft tokens for another model, this one for {kind} of embedding length "
    assert said in alone.stderr
    assert "`worker serve TARGET --draft-model drafter.gguf`.\n" in alone.stderr


@pytest.mark.parametrize(("who", "told"), [("mtp", "mtp"), ("auto", "both")])
def test_heads(who: str, told: str, tmp_path: Path) -> None:
    """A file's own heads guess, alone or by default beside the text, and replies count it."""
    path = WRITERS["qwen35"](tmp_path / "m.gguf")
    with guessing("--model", path, "--draft", who, "-c", "2048", "-t", "1") as server:
        timings = [server.post(BODY).json()["timings"] for _ in range(3)]
        assert sum(found["draft_n_accepted"] for found in timings) > 0
        info = http.get(f"{server.url}/info").json()
        assert (info["draft"], info["draft_model"]) == (told, None)


@pytest.mark.parametrize("words", ["--draft mtp", "--spec-type ngram-mod,draft-simple"])
def test_a_file_without_heads_is_refused(words: str, tiny: Path) -> None:
    """It exits with 2 before anything is loaded."""
    done = ended("serve", "--model", tiny, *words.split(), "--port", "0")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert "There is no draft model, and " in last
    assert "cannot draft its own tokens: the file has no heads" in last


def test_another_vocabulary_is_refused(tiny: Path, tmp_path: Path) -> None:
    """It exits with 2 before anything is loaded."""
    other = ggufs.write_llama(tmp_path / "other.gguf", vocab_size=500)
    done = ended("serve", "--model", tiny, "-md", other, "--port", "0")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        "error: USAGE: other.gguf cannot draft tokens for tiny.gguf"
    )


COUNT = 500 if os.environ.get("EXHAUSTIVE") else 28  # each kind twice


def test_the_same_with_guesses(tmp_path: Path) -> None:
    """Requests of all kinds get what they get without guesses, beside streams that are left.

    In 32 bits, weights too.
    """
    model = tmp_path / "demo.gguf"
    assert ended("quantize", MODEL_PATH, model, "F32").returncode == 0
    with contextlib.ExitStack() as stack:
        plain, guessing = (
            stack.enter_context(serving("--model", model, "-c", "8192", *EXACT, "--draft", who))
            for who in ("none", "auto")
        )
        for number in range(COUNT):
            kinds = bodies(number)
            path, body = kinds[number % len(kinds)]
            if number % 3 == 0:
                left = [answer(each, COMPLETIONS, kinds[5][1], 4) for each in (plain, guessing)]
                texts = sorted((each["choices"][0]["text"] for each in left), key=len)
                assert texts[1].startswith(texts[0])
            found = [answer(each, path, body) for each in (plain, guessing)]
            assert "error" not in found[0]
            check_same(found[0], found[1], f"{number} {body}")
        assert scrape(guessing.url)["worker_draft_tokens_accepted_total"] > 3 * COUNT
        assert not scrape(plain.url).get("worker_draft_tokens_total")
