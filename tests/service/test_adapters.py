"""An adapter for each request, in one worker: each text is that of a worker with it alone."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support import http, metrics
from tests.support.models.adapters import lora_gguf, write_lora
from tests.support.models.ggufs import U32, array
from tests.support.programs.processes import Server, ended, serving
from worker.isolation import sandbox

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


@pytest.mark.parametrize("more", ["--cache-ram 0", "--draft ngram", "--parallel 2"])
def test_in_other_workers(
    tiny: Path, files: dict[str, Path], alone: list[list[str]], more: str
) -> None:
    """The same without host memory, with guesses, and where most of them wait."""
    with (
        serving(*options(tiny, files, *NAMES), *more.split()) as server,
        ThreadPoolExecutor(8) as pool,
    ):
        choices = [choice for choice, _ in SETS]
        assert list(pool.map(partial(converse, server, start=START), choices)) == alone


def renumbered(choice: Choice, numbers: list[int]) -> Choice:
    if isinstance(choice, str):
        return choice
    return [{"id": numbers[each["id"]], "scale": each["scale"]} for each in choice]


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
                assert converse(server, renumbered(choice, numbers), START) == expected
            read = metrics.scrape(server.url)["worker_cache_disk_read_bytes_total"]
            assert (read > 0) == (names != NAMES)


def test_by_name(server: Server, alone: list[list[str]]) -> None:
    """As the model's name, with the base's before it too, in every API; the answer has that name,
    and the list says whose adapter it is."""
    entries = http.get(server.url + "/v1/models").json()["data"]
    assert [(each["id"], each["parent"]) for each in entries] == [
        (BASE, None), *((name, BASE) for name in NAMES)
    ]  # fmt: skip
    assert http.get(server.url + "/v1/models/two").json()["parent"] == BASE
    first = alone[2][0].removeprefix(START).removesuffix(" and then 0 ")
    assert say(server, "two") == say(server, f"{BASE}:two") == first
    greedy = {"prompt": START, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    for path, text in (("/completion", "content"), ("/v1/infer", "text")):
        assert server.post({**greedy, "model": "two"}, path).json()[text] == first
    chat: dict[str, Any] = {
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 8,
        "temperature": 0,
    }
    chat |= {"stream": False, "input": "hello", "model": "two"}
    for path in ("/v1/chat/completions", "/v1/messages", "/api/chat", "/v1/responses"):
        assert server.post(chat, path).json()["model"] == "two"
    assert server.post({**chat, "model": "two:latest"}, "/api/chat").is_success


@pytest.mark.parametrize(
    ("status", "fields", "named"),
    [
        (404, {"model": "four"}, "'org/tiny', 'one', 'two', 'three'"),
        (404, {"model": "other:one"}, "'one'"),
        (404, {"lora": [{"id": 3, "scale": 1}]}, "0 (one), 1 (two), 2 (three)"),
        (404, {"lora": [{"id": -1, "scale": 1}]}, "0 (one)"),
        (400, {"lora": [{"id": 0, "scale": 1e30}]}, "from -100 to 100"),
        (400, {"lora": [{"id": 0, "scale": 1}, {"id": 0, "scale": 2}]}, "twice"),
        (400, {"lora": [{"id": 0}]}, "scale"),
        (400, {"model": "one", "lora": []}, "Both"),
    ],
)
def test_what_is_not_here(server: Server, status: int, fields: dict[str, Any], named: str) -> None:
    """An error that says what there is, in every API."""
    for path in ("/v1/completions", "/v1/chat/completions", "/api/generate"):
        body = {"prompt": "a", "messages": [{"role": "user", "content": "a"}], **fields}
        answer = server.post(body, path)
        assert (answer.status_code, named in answer.text) == (status, True), answer.text


def test_for_all(tiny: Path, files: dict[str, Path], alone: list[list[str]]) -> None:
    """What counts for requests that choose nothing is said at the start and by /lora-adapters; an
    empty list chooses the model alone."""
    first = [said[0].removeprefix(START).removesuffix(" and then 0 ") for said in alone]
    lora = f"{files['one']}=one,{files['two']}"
    with serving(*options(tiny, files), f"--lora={lora}") as server:
        path = server.url + "/lora-adapters"
        listed = http.get(path).json()
        assert [(each["id"], each["name"], each["scale"]) for each in listed] == [
            (0, "one", 0.0), (1, "two", 1.0)
        ]  # fmt: skip
        assert (listed[0]["path"], listed[0]["rank"]) == ("one.gguf", 4)
        assert say(server, "") == say(server, BASE) == first[2]
        assert say(server, []) == first[0]
        assert http.post(path, json=scaled(0.5, 0.75)).json() == {"success": True}
        assert say(server, "") == first[4]
        assert say(server, "two") == first[2]
        assert http.post(path, json=[{"id": 2, "scale": 1}]).status_code == 404
        assert http.post(path, json=[{"id": 0, "scale": -1}]).is_success
        assert say(server, BASE) == first[5]
        assert http.post(path, json=[]).is_success
        assert say(server, BASE) == first[0]
    with serving(*options(tiny, files), f"--lora={lora}", "--lora-init-without-apply") as server:
        assert say(server, BASE) == first[0]


def test_wrong_ones_are_refused(tiny: Path, files: dict[str, Path], tmp_path: Path) -> None:
    """One sentence at the start, before native code sees the file."""
    gguf = lora_gguf(tiny)
    gguf.drop("blk.0.attn_q.weight.lora_a")
    wrong = gguf.write(tmp_path / "wrong.gguf")
    for lora, code in (
        (wrong, "MISSING_TENSOR"),
        (tiny, "NOT_ADAPTER"),
        (tmp_path / "none.gguf", "NOT_FOUND"),
        (f"{files['one']}={BASE}", "USAGE"),
        (f"{files['one']},{files['one']}=again", "USAGE"),
    ):
        done = ended("serve", "--port", "0", *options(tiny, files), f"--lora={lora}")
        assert done.returncode != 0
        assert done.stderr.splitlines()[-1].startswith(f"error: {code}: "), done.stderr


def test_vectors(tiny: Path, files: dict[str, Path]) -> None:
    """They are computed without adapters, and who names one is told so."""
    with serving(*options(tiny, files, "one"), "--pooling", "last") as server:
        vectors = [
            server.post({"input": "a", "model": model}, "/v1/embeddings") for model in (BASE, "one")
        ]
    assert [answer.status_code for answer in vectors] == [200, 400]
    assert "without adapters" in vectors[1].text


def load(server: Server, name: str, path: str | Path) -> httpx.Response:
    return server.post({"lora_name": name, "lora_path": str(path)}, "/v1/load_lora_adapter")


def unload(server: Server, name: str) -> httpx.Response:
    return server.post({"lora_name": name}, "/v1/unload_lora_adapter")


def only(said: list[list[str]]) -> list[str]:
    """The first answers."""
    return [each[0].removeprefix(START).removesuffix(" and then 0 ") for each in said]


def test_while_it_serves(
    tiny: Path, files: dict[str, Path], alone: list[list[str]], tmp_path: Path
) -> None:
    """One is there once it is loaded and gone once it is unloaded, also in the sandbox. Another one
    of the same name is never answered from what is known of the first, on disk neither."""
    folder, first = files["one"].parent, only(alone)
    more = ["--lora-dir", folder, "--cache-dir", tmp_path, "--ctx-size", "2048"]
    more += ["--sandbox"] * (sandbox.version() >= sandbox.NEEDED)
    for _ in range(2):
        with serving(*options(tiny, files, "one"), *more) as server:
            assert load(server, "new", "two.gguf").text == (
                "Success: LoRA adapter 'new' added successfully."
            )
            names = [each["id"] for each in http.get(server.url + "/v1/models").json()["data"]]
            assert names == [BASE, "one", "new"]
            assert [say(server, name) for name in (BASE, "one", "new")] == first[:3]
            assert unload(server, "new").text == "Success: LoRA adapter 'new' removed successfully."
            assert server.post({"model": "new", "prompt": "a"}).status_code == 404
            assert load(server, "new", folder / "three.gguf").is_success
            assert say(server, "new") == first[3]
            listed = http.get(server.url + "/lora-adapters").json()
            assert [(each["id"], each["path"]) for each in listed] == [
                (0, "one.gguf"), (2, "three.gguf")
            ]  # fmt: skip
            assert say(server, [{"id": 2, "scale": 1}]) == first[3]
            assert server.post({"lora": [{"id": 1, "scale": 1}], "prompt": "a"}).status_code == 404
            assert unload(server, "one").is_success
            assert unload(server, "new").is_success
            assert server.post({"model": "one", "prompt": "a"}).status_code == 404
            assert say(server, BASE) == first[0]


def test_what_cannot_be_loaded(tiny: Path, files: dict[str, Path], tmp_path: Path) -> None:
    """A sentence that says why, no word of files outside of the folder, and all goes on."""
    folder = tmp_path / "within"
    folder.mkdir()
    (folder / "one.gguf").write_bytes(files["one"].read_bytes())
    (folder / "out.gguf").symlink_to(files["two"])
    (folder / "model.gguf").write_bytes(tiny.read_bytes())
    (folder / "cut.gguf").write_bytes(files["two"].read_bytes()[:-64])
    lora_gguf(tiny, seed=9, rank=256).write(folder / "large.gguf")
    # It would leave NaN in cells, and other requests of these cells would get empty answers.
    nan = np.full(16, np.nan, "<f4").tobytes()
    (folder / "nan.gguf").write_bytes(files["two"].read_bytes()[: -len(nan)] + nan)
    lora_gguf(tiny, seed=9, alpha=math.inf).write(folder / "endless.gguf")
    lora_gguf(tiny, seed=9, alpha=1e5).write(folder / "loud.gguf")
    secret = tmp_path / "within-not.gguf"
    secret.write_bytes(files["two"].read_bytes())
    wrong: list[tuple[str, str | Path, int, str]] = [
        ("new", "out.gguf", 404, "no file 'out.gguf'"),
        ("new", "../within-not.gguf", 404, "no file"),
        ("new", secret, 404, "no file"),
        ("new", "none.gguf", 404, "no file"),
        ("new", ".", 404, "no file"),
        ("new", "a\0b", 404, "no file"),
        ("new", "a" * 5000, 404, "no file"),
        ("new", "model.gguf", 400, "not an adapter"),
        ("new", "cut.gguf", 400, "ends before"),
        ("new", "nan.gguf", 400, "not finite"),
        ("new", "endless.gguf", 400, "100 times the rank"),
        ("new", "loud.gguf", 400, "100 times the rank"),
        ("new", "large.gguf", 400, "needs"),
        (BASE, "one.gguf", 400, "served already"),
        ("one", "one.gguf", 400, "served already"),
        ("again", "one.gguf", 400, "as one"),
        ("", "one.gguf", 400, "lora_name"),
    ]
    with serving(*options(tiny, files), "--lora-dir", folder, "--lora-memory", "1") as server:
        assert load(server, "one", "one.gguf").is_success
        for name, path, status, named in wrong:
            answer = load(server, name, path)
            assert (answer.status_code, named in answer.text) == (status, True), answer.text
            assert path == secret or str(tmp_path) not in answer.text
        refused = load(server, "new", "large.gguf").json()["error"]
        assert refused["code"] == "no_room"
        assert re.search(r"needs 1.2 MiB, and 9\d\d.\d KiB are left", refused["message"]), refused
        assert unload(server, "two").status_code == 404
        assert len(http.get(server.url + "/lora-adapters").json()) == 1
        assert say(server, "one") != say(server, BASE)
    with serving(*options(tiny, files, "one")) as server:
        for answer in (load(server, "two", files["two"]), unload(server, "one")):
            assert (answer.status_code, "--lora-dir" in answer.text) == (404, True)


def test_until_a_request_ends(tiny: Path, files: dict[str, Path]) -> None:
    """One that is unloaded is there for who writes with it, and takes its room, until they end."""
    folder = files["one"].parent
    body = {
        "model": "one", "prompt": START, "max_tokens": 40, "temperature": 0, "seed": 7,
        "ignore_eos": True,
    }  # fmt: skip
    more = ["--lora-dir", str(folder), "--lora-memory", "1", "--parallel", "2"]
    rank = lora_gguf(tiny, seed=5, rank=200).write(folder / "rank.gguf")
    with serving(*map(str, options(tiny, files)), *more, step_seconds=0.05) as server:
        assert load(server, "one", "one.gguf").is_success
        expected = server.post(body).json()["choices"][0]["text"]
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(server.post, body)
            server.wait_until(slots_processing=1)
            assert unload(server, "one").is_success
            assert load(server, "large", rank.name).status_code == 400
            assert load(server, "one", "one.gguf").is_success  # still there: it is taken again
            assert unload(server, "one").is_success
            assert server.post(body).status_code == 404
            assert running.result().json()["choices"][0]["text"] == expected
        deadline = time.monotonic() + 30
        while not (answer := load(server, "large", rank.name)).is_success:
            assert time.monotonic() < deadline, answer.text
        assert say(server, "large")


def test_activated(tiny: Path, files: dict[str, Path], tmp_path: Path) -> None:
    """One that is invoked by tokens counts from the last ones on: what is before them the model
    alone has read, for whom it is known then. Without them it does not count, and it counts alone.
    """
    gguf = lora_gguf(tiny, seed=1)
    gguf.keys["adapter.alora.invocation_tokens"] = array(U32, [70, 71])
    activated = gguf.write(tmp_path / "activated.gguf")
    before, behind = [1, *range(80, 180)] * 5, list(range(200, 230))

    def ask(server: Server, model: str, prompt: list[int]) -> tuple[str, int]:
        body = {
            "model": model, "prompt": prompt, "max_tokens": 16, "temperature": 0, "seed": 7,
            "ignore_eos": True,
        }  # fmt: skip
        answer = server.post(body).json()
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return answer["choices"][0]["text"], cached

    invoked = [*before, 70, 71, *behind]
    more = ("--lora", f"{activated}=activated", "--parallel", "4")
    with serving(*options(tiny, files, "one"), *more) as server:
        alone = {model: ask(server, model, [70, 71, *behind])[0] for model in (BASE, "one")}
        assert ask(server, "activated", [70, 71, *behind])[0] == alone["one"] != alone[BASE]
        bare = ask(server, BASE, [*before, *behind])[0]
        assert ask(server, "activated", [*before, *behind])[0] == bare
        first, cached = ask(server, "activated", invoked)
        assert 0 < cached <= len(before)
        again = [ask(server, model, invoked) for model in ("one", BASE, "activated")]
        assert len({first, *(text for text, _ in again)}) == 3
        assert again[2][0] == first
        last = [*invoked, 90, 70, 71, 90]
        assert ask(server, "activated", last)[0] == ask(server, "activated", last)[0]
        both = {"lora": [{"id": 0, "scale": 1}, {"id": 1, "scale": 1}], "prompt": "a"}
        refused = server.post(both)
        assert (refused.status_code, "counts alone" in refused.text) == (400, True)
        assert http.post(server.url + "/lora-adapters", json=both["lora"]).status_code == 400
        entry = http.get(server.url + "/lora-adapters").json()[1]
        assert entry["alora_invocation_tokens"] == [70, 71]
    with serving(*options(tiny, files, "one"), *more, "--cache-ram", "0", "-b", "16") as server:
        assert ask(server, "activated", invoked) == (first, 0)
    words = [*options(tiny, files), "--lora", f"{files['two']},{activated}"]
    done = ended("serve", "--port", "0", *words)
    assert done.returncode == 2
    assert "counts alone" in done.stderr.splitlines()[-1]
