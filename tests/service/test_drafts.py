"""A worker with a draft model or heads: what it says, what it counts, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.metrics import scrape
from tests.support.models import drafters, ggufs
from tests.support.models.heads import WRITERS
from tests.support.programs.processes import Server, ended, serving
from worker.demo import HELDOUT_PATH, MODEL_PATH

BODY = {"prompt": [1, *range(5, 25)], "max_tokens": 60, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def drafted(tiny: Path) -> Generator[Server]:
    """A model that drafts for itself."""
    with serving("--model", tiny, "--draft-model", tiny, "-c", "2048", "-t", "1") as server:
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
    with serving("--model", target, "-md", eagle, "--draft", "model", "-c", "2048") as server:
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
    with serving("--model", target, *words) as server:
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
    with serving("--model", target, *words) as server:
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


@pytest.mark.parametrize(
    ("writer", "why"),
    [
        (drafters.write_eagle, "it reads layer 2"),
        (drafters.write_dflash, "it reads layer 2"),
        (drafters.write_assistant, "it looks at cells of gemma4 models"),
    ],
)
def test_a_drafter_of_another_model_is_refused(
    writer: Callable[[Path], Path], why: str, tiny: Path, tmp_path: Path
) -> None:
    """It exits with 2 before anything is loaded; one that is served alone is no model."""
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
    assert alone.returncode == 1
    assert "only draft tokens for another model" in alone.stderr


@pytest.mark.parametrize(("who", "told"), [("mtp", "mtp"), ("auto", "both")])
def test_heads(who: str, told: str, tmp_path: Path) -> None:
    """A file's own heads guess, alone or by default beside the text, and replies count it."""
    path = WRITERS["qwen35"](tmp_path / "m.gguf")
    with serving("--model", path, "--draft", who, "-c", "2048", "-t", "1") as server:
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
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
FORM = {
    "type": "object",
    "properties": {
        "name_of_the_place": {"enum": ["garden", "kitchen", "market"]},
        "number_of_animals": {"type": "integer", "minimum": 0, "maximum": 99},
        "is_far_away": {"type": "boolean"},
    },
    "required": ["name_of_the_place", "number_of_animals", "is_far_away"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "look_at_a_place", "parameters": FORM}}
# What differs from one answer to the same request to the next, and lists with a place for each.
OWN = frozenset({"id", "created", "timings", "prompt_tokens_details", "cached_tokens"})
GROWING = frozenset({"text", "content", "arguments", "reasoning_content"})


def bodies(number: int) -> list[tuple[str, dict[str, Any]]]:
    """(path, body) of each kind of request, about a text that is written again."""
    draw = random.Random(number)
    text = draw.choice(HELDOUT_PATH.read_text().split("\n\n"))[:400]
    begun = {"prompt": f"{text}\n\n{text[: draw.randrange(20, 90)]}", "max_tokens": 70}
    said = {"messages": [{"role": "user", "content": text[:200]}], "max_tokens": 70}
    called = said | {"tools": [TOOL], "tool_choice": "required"}
    form = {"type": "json_schema", "json_schema": {"name": "form", "schema": FORM}}
    return [
        (COMPLETIONS, begun),
        (COMPLETIONS, begun | {"stop": draw.choice(text.split())}),
        (COMPLETIONS, begun | {"logprobs": 2}),
        (COMPLETIONS, begun | {"logprobs": 1, "echo": True, "max_tokens": 20}),
        (COMPLETIONS, begun | {"n": 3, "echo": True}),
        (COMPLETIONS, begun | {"stream": True, "stream_options": {"include_usage": True}}),
        (COMPLETIONS, begun | {"temperature": 0.8, "seed": number}),
        (COMPLETIONS, begun | {"guided_regex": "(The|A) (small|great) animal (said|was) [a-z ]+"}),
        (CHAT, said),
        (CHAT, said | {"stream": True, "logprobs": True, "top_logprobs": 2}),
        (CHAT, called),
        (CHAT, called | {"stream": True, "max_tokens": draw.randrange(1, 70)}),
        (CHAT, said | {"response_format": form}),
        (CHAT, said | {"response_format": form, "stop": "animals", "logprobs": True}),
    ]


def grown(old: Any, new: Any, key: str = "") -> Any:
    """Events of a stream as one answer."""
    kind = old.__class__ if old.__class__ is new.__class__ else None
    if kind is dict:
        return old | {name: grown(old.get(name), value, name) for name, value in new.items()}
    if kind is list:
        if not all("index" in each for each in [*old, *new]):
            return old + new
        places = {each["index"]: each for each in old}
        for each in new:
            places[each["index"]] = grown(places.get(each["index"]), each)
        return list(places.values())
    if key in GROWING and isinstance(old, str):
        return old + (new or "")
    return old if new is None else new


def answer(server: Server, path: str, body: dict[str, Any], leave: int | None = None) -> Any:
    """All that a client sees, without times; of a stream that is left, the first events."""
    body = {"temperature": 0, **body}
    if not body.get("stream"):
        return server.post(body, path).json()
    found: Any = None
    with http.stream("POST", server.url + path, json=body) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                found = grown(found, json.loads(line[6:]))
                leave = leave and leave - 1
            if leave == 0:
                break
    return found


def check_same(one: Any, other: Any, place: str = "") -> None:
    """Assert that two answers differ in times only, and in numbers by rounding."""
    assert one.__class__ is other.__class__, place
    kind = one.__class__
    if kind is dict:
        assert one.keys() == other.keys(), place
        for key in one.keys() - OWN:
            check_same(one[key], other[key], f"{place}.{key}")
    elif kind is list:
        assert len(one) == len(other), place
        for index, each in enumerate(one):
            check_same(each, other[index], f"{place}.{index}")
    elif kind is float:
        assert one == pytest.approx(other, abs=1e-3), place
    else:
        assert one == other, place


def test_the_same_with_guesses(tmp_path: Path) -> None:
    """Requests of all kinds get what they get without guesses, beside streams that are left.

    In 32 bits, in which rows that are computed together differ from one alone by 1e-6: so close
    the two likeliest of some 30,000 tokens come once in a hundred runs.
    """
    model = tmp_path / "demo.gguf"
    assert ended("quantize", MODEL_PATH, model, "F32").returncode == 0
    exact = ("--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off")
    with contextlib.ExitStack() as stack:
        plain, guessing = (
            stack.enter_context(serving("--model", model, "-c", "8192", *exact, "--draft", who))
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
