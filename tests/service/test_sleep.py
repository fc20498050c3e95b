"""A worker whose model sleeps: what is given back, what wakes it, what it says then."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.api.media import asked as media
from tests.support import http
from tests.support.metrics import scrape
from tests.support.models import ggufs
from tests.support.models.adapters import write_lora
from tests.support.models.embedders import Embedder
from tests.support.models.heads import WRITERS
from tests.support.models.projectors import png, write_llava
from tests.support.programs.managers import accepts, manager
from tests.support.programs.processes import Server, guessing, serving, until
from worker.isolation import sandbox
from worker.service.app import APIS

BODY = {
    "prompt": "Once upon a time there was a king who had three sons and one of them said so" * 2,
    "max_tokens": 24, "temperature": 0, "seed": 7, "ignore_eos": True,
}  # fmt: skip
CELLS = ("-c", "2048")
SANDBOX = "--sandbox" if sandbox.version() >= sandbox.NEEDED else "--no-page"


def said(server: Server, **fields: Any) -> tuple[str, int]:
    """A text, and how many tokens of its prompt were known."""
    answer = server.post({**BODY, **fields})
    assert answer.status_code == 200, answer.text
    reply = answer.json()
    known = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
    return reply["choices"][0]["text"], known


def asleep(server: Server) -> bool:
    return http.get(server.url + "/is_sleeping").json()["is_sleeping"]


def sleep(server: Server) -> None:
    answer = server.post({}, "/sleep?level=1")
    assert (answer.status_code, answer.json()) == (200, {"is_sleeping": True})


@pytest.mark.parametrize(
    "words",
    ["", "--cache-ram 0", "--cache-ram 100 --cache-dir {here}", "-np 1 --no-mmap", "--pooling mean",
     "--draft-model {tiny}", SANDBOX],
)  # fmt: skip
def test_it_says_the_same(tiny: Path, tmp_path: Path, words: str) -> None:
    """Twice over, with what it knew of the prompt, where that is kept."""
    options = [word.format(here=tmp_path, tiny=tiny) for word in words.split()]
    with serving("--model", tiny, *CELLS, *options) as server:
        first, _ = said(server)
        again = said(server)
        assert again[0] == first
        kept = set[int]()
        for _ in range(2):
            sleep(server)
            assert asleep(server)
            text, known = said(server)
            assert text == first
            assert (known > 0) == ("--cache-ram 0" not in words)
            assert known <= again[1]
            kept.add(known)
            assert not asleep(server)
        assert len(kept) == 1


def test_heads_guess_again(tmp_path: Path) -> None:
    """The file's own heads, and a model that cannot go back."""
    path = WRITERS["qwen35"](tmp_path / "m.gguf")
    body = {"prompt": [1, *range(5, 25)], "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    with guessing("--model", path, "--draft", "mtp", *CELLS) as server:
        sleep(server)
        replies = [server.post(body).json() for _ in range(3)]
        assert sum(reply["timings"]["draft_n_accepted"] for reply in replies) > 0
        assert len({reply["choices"][0]["text"] for reply in replies}) == 1


def test_by_itself(tiny: Path) -> None:
    """After the time; what asks about the worker does not keep it awake, and all of it says so."""
    with (
        manager(accepts) as hive,
        serving(
            "--model", tiny, *CELLS, "--sleep-idle-seconds", "0.3", "--heartbeat-interval", "60",
            "--heartbeat-url", hive.url,
        ) as server,
    ):  # fmt: skip
        first = said(server)[0]
        until(lambda: asleep(server))
        assert server.post({"model": "m"}, "/api/show").status_code == 200
        props = http.get(server.url + "/props").json()
        assert (props["is_sleeping"], props["bos_token"]) == (True, "<s>")
        assert http.get(server.url + "/info").json()["status"] == "sleeping"
        health = server.health()
        told = [health[name] for name in ("status", "resident", "is_sleeping")]
        assert told == ["ok", False, True]
        assert scrape(server.url)["worker_sleeping"] == 1
        until(lambda: any(told["worker"]["status"] == "sleeping" for told in hive.bodies))
        assert asleep(server)
        assert server.post({"content": "Once"}, "/tokenize").json()["tokens"]
        assert said(server)[0] == first
        until(lambda: asleep(server))
        answer = http.post(server.url + "/wake_up?tags=weights")
        assert (answer.status_code, answer.json()) == (200, {"is_sleeping": False})


ROUTES = [
    (method, re.sub(r"\{[^}]*\}", "x", path), route)
    for api in APIS
    for route in api.routes
    for path in sorted(route.handler.paths)
    for method in sorted(route.handler.http_methods - {"HEAD", "OPTIONS"})
]


def test_what_wakes_nobody(tiny: Path) -> None:
    """No GET, no path that is not there, and nothing that a page of another origin sends."""
    pages: list[dict[str, str]] = [
        {"origin": "https://elsewhere.example"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
        {"sec-fetch-site": "same-site"},
    ]
    with serving("--model", tiny, *CELLS) as server:
        before = http.get(server.url + "/tokenizer_info").json()
        sleep(server)
        for method, path, route in ROUTES:
            if method == "GET" and "requests" not in path:
                answer = http.get(server.url + path)
                needs_state = path.startswith(("/v1/files", "/v1/batches"))
                usual = 501 if needs_state else 404 if "/x" in path else 200
                assert answer.status_code == usual, (path, answer.text)
            for page in pages if route.asker is not None else ():
                answer = http.request(method, server.url + path, headers=page)
                assert answer.status_code == 403, (method, path, page)
        for method, path in (("POST", "/x"), ("POST", "/v1/models"), ("DELETE", "/infill")):
            assert http.request(method, server.url + path).status_code in (404, 405)
        assert http.get(server.url + "/tokenizer_info").json() == before
        assert asleep(server)


def test_what_wakes_it(tiny: Path) -> None:
    """A body that is read for the model; not one that is about accepted work or adapters."""
    with serving("--model", tiny, *CELLS, "--slot-save-path", ".") as server:
        for path, wakes in (
            ("/cancel", False), ("/api/show", False), ("/lora-adapters", False),
            ("/v1/responses/x/cancel", False), ("/v1/requests/x/cancel", False),
            ("/tokenize", True), ("/slots/0?action=erase", True), ("/v1/completions", True),
        ):  # fmt: skip
            sleep(server)
            http.post(server.url + path, json=[] if "lora" in path else {"prompt": "a"})
            assert asleep(server) != wakes, path


def test_memory(tmp_path: Path) -> None:
    """What it holds asleep is what a worker with next to no model holds."""
    paths = [tmp_path / "small.gguf", tmp_path / "large.gguf"]
    ggufs.write_llama(paths[0], context=512)
    ggufs.write_llama(paths[1], context=8192, embedding=512, feed_forward=8192, layers=6)
    held: list[int] = []
    awake = 0
    for path in paths:
        with serving("--model", path, "--cache-ram", "0", "--no-mmap", "-c", "8192") as server:
            said(server)
            awake = server.health()["memory_bytes"]
            sleep(server)
            held.append(server.health()["memory_bytes"])
    assert awake - held[1] > 250e6
    assert held[1] - held[0] < 60e6


@pytest.mark.parametrize("stream", [False, True])
def test_it_comes_while_another_runs(tiny: Path, stream: bool) -> None:
    """What runs ends first; what comes meanwhile waits, is served, and nothing is lost."""
    long = {**BODY, "max_tokens": 100, "stream": stream}
    with serving("--model", tiny, *CELLS, step_seconds=0.02) as server:
        with ThreadPoolExecutor(4) as pool:
            running = pool.submit(server.post, long)
            server.wait_until(slots_processing=1)
            falling = pool.submit(http.post, server.url + "/sleep")
            while not falling.done():
                said(server, max_tokens=3)
        assert falling.result().status_code == 200
        text = running.result().text
        assert text.count("data: ") == 101 if stream else len(json.loads(text)["choices"]) == 1
        said(server)
        server.logged("the model sleeps")
        server.wait_for("the model is back")


def test_many_wake_it_once(tiny: Path) -> None:
    """As many as may wait: the others hear at once that the queue is full."""
    with serving("--model", tiny, *CELLS, "-np", "2", "--queue-size", "6") as server:
        sleep(server)
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(server.post, [{**BODY, "stream": True}] * 16))
        assert {answer.status_code for answer in answers} <= {200, 429}
        assert sum(answer.status_code == 200 for answer in answers) >= 8
        assert sum("the model is back" in line for line in server.lines) == 1


def test_what_it_refuses(tiny: Path) -> None:
    """Another mode than to wait, who has no key, and pages from elsewhere."""
    with serving("--model", tiny, *CELLS) as server:
        answer = server.post({}, "/sleep?mode=abort")
        assert answer.status_code == 400
        assert "mode must be wait" in answer.json()["error"]["message"]
        page = {"origin": "https://elsewhere.example"}
        assert http.post(server.url + "/sleep", headers=page).status_code == 403
        assert not asleep(server)
    with serving("--model", tiny, *CELLS, "--api-key", "k") as server:
        for path in ("/sleep", "/wake_up"):
            assert http.post(server.url + path).status_code == 401


@contextlib.contextmanager
def gone(server: Server, path: Path) -> Generator[None]:
    path.rename(path.with_suffix(".away"))
    yield
    path.with_suffix(".away").rename(path)


@contextlib.contextmanager
def another(server: Server, path: Path) -> Generator[None]:
    ggufs.write_llama(path.with_suffix(".new"), context=2048, layers=3)
    with gone(server, path):
        path.with_suffix(".new").replace(path)
        yield


@contextlib.contextmanager
def no_memory(server: Server, path: Path) -> Generator[None]:
    """As much address space as the process has, and what Python needs to say so."""
    size = int(Path(f"/proc/{server.pid}/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.prlimit(server.pid, resource.RLIMIT_AS)
    resource.prlimit(server.pid, resource.RLIMIT_AS, (size + (32 << 20), before[1]))
    yield
    resource.prlimit(server.pid, resource.RLIMIT_AS, before)


@contextlib.contextmanager
def no_descriptors(server: Server, path: Path) -> Generator[None]:
    before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (0, before[1]))
    yield
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, before)


Trouble = Callable[[Server, Path], contextlib.AbstractContextManager[None]]


def refused(server: Server, path: str = "/v1/completions") -> str:
    """What who asks now is told."""
    answer = server.post(BODY, path)
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json()["error"]["code"] == "wake_failed"
    message = answer.json()["error"]["message"]
    assert message.startswith("The model could not be loaded again: ")
    assert "download" not in message
    return message


@pytest.mark.parametrize("trouble", [gone, another])
@pytest.mark.parametrize("which", ["model", "draft", "adapter"])
def test_a_file_is_gone_for_a_moment(
    tiny: Path, tmp_path: Path, trouble: Trouble, which: str
) -> None:
    """Who asks is told which file and why; the worker stays, and says the same once it is back."""
    paths = {"model": tmp_path / "m.gguf", "draft": tmp_path / "d.gguf"}
    for path in paths.values():
        ggufs.write_llama(path, context=2048)
    paths["adapter"] = tmp_path / "a.gguf"
    write_lora(paths["adapter"], paths["model"], 1)
    options = ("--draft-model", paths["draft"], "--lora", paths["adapter"])
    with serving("--model", paths["model"], *CELLS, *options) as server:
        first = said(server)[0]
        for _ in range(2):
            sleep(server)
            with trouble(server, paths[which]):
                told = refused(server)
                assert str(paths[which]) in told
                assert ("the next request tries again" in told) is (trouble is another)
                assert "start again" not in told
                assert "could not be loaded again" in refused(server, "/wake_up")
                health = server.health()
                assert (health["status"], health["is_sleeping"]) == ("ok", True)
            assert said(server)[0] == first


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process")
@pytest.mark.parametrize("words", ["", "--no-mmap", "--pooling mean"])
def test_no_memory_for_a_moment(tmp_path: Path, words: str) -> None:
    """Who asks is told that memory is short, as often as it is; then the worker says the same."""
    path = tmp_path / "m.gguf"
    ggufs.write_llama(path, context=8192, embedding=512, feed_forward=8192, layers=6)
    options = ("-c", "8192", "--cache-ram", "0", *words.split())
    with serving("--model", path, *options) as server:
        first = said(server)[0]
        sleep(server)
        asleep_bytes = server.health()["memory_bytes"]
        with no_memory(server, path):
            for _ in range(3):
                assert "Free memory" in refused(server)
        assert server.health()["memory_bytes"] < asleep_bytes + 60e6
        assert said(server)[0] == first


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process")
def test_all_that_wait_are_told_at_once(tmp_path: Path) -> None:
    """One attempt is made for all requests that wait for it."""
    path = ggufs.write_llama(tmp_path / "m.gguf", context=2048)
    with serving("--model", path, *CELLS) as server:
        sleep(server)
        with gone(server, path), ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(server.post, [BODY] * 8))
        assert {answer.status_code for answer in answers} == {503}
        assert said(server)[0]


def test_it_gives_up_after_so_many_attempts(tmp_path: Path) -> None:
    """With --wake-attempts the worker ends as when it cannot start; one success counts anew."""
    path = ggufs.write_llama(tmp_path / "m.gguf", context=2048)
    with serving("--model", path, *CELLS, "--wake-attempts", "2") as server:
        for _ in range(2):
            sleep(server)
            with gone(server, path):
                refused(server)
            said(server)
        sleep(server)
        with gone(server, path):
            refused(server)
            answer = server.post(BODY)
            assert answer.status_code == 503
            assert answer.json()["error"]["message"].startswith("The worker failed: ")
            assert server.wait() == 1
        assert server.lines[-1].startswith("error: ")


@pytest.mark.mtmd
@pytest.mark.parametrize("words", ["", SANDBOX])
def test_the_projector_is_gone_for_a_moment(tmp_path: Path, words: str) -> None:
    """Who sends a picture is told, texts are answered, and pictures again once it is back."""
    model, projector = write_llava(tmp_path)
    with serving("--model", model, *CELLS, *words.split()) as server:
        first = media.said(server, media.chat(media.user(media.picture())))
        for seed in (5, 6):
            sleep(server)
            chat = media.chat(media.user(media.picture(png(seed=seed))))
            with gone(server, projector):
                for _ in range(2):
                    answer = server.post(chat, "/v1/chat/completions")
                    assert answer.status_code == 503, answer.text
                    assert answer.json()["error"]["code"] == "wake_failed"
                    assert int(answer.headers["retry-after"]) > 0
                assert media.said(server, media.chat(media.user(media.picture()))) == first
            assert media.said(server, chat)


@pytest.mark.parametrize("is_asleep", [True, False])
def test_it_ends(tiny: Path, tmp_path: Path, is_asleep: bool) -> None:
    """Asleep, and while it wakes: who waits is told, and the exit code is 0."""
    loaded = tmp_path / "loaded"
    loaded.touch()
    env = {"LOADED": str(loaded)}
    with serving("--model", tiny, *CELLS, env=env, step_seconds=0.01) as server:
        said(server)
        sleep(server)
        loaded.unlink()
        with ThreadPoolExecutor(1) as pool:
            waiting = None if is_asleep else pool.submit(server.post, BODY)
            if waiting is not None:
                server.wait_for("the model wakes")
            os.kill(server.pid, signal.SIGTERM)
            if waiting is not None:
                assert waiting.result().status_code == 503
        assert server.wait() == 0


def test_who_leaves_while_it_wakes(tiny: Path, tmp_path: Path) -> None:
    """The model comes back all the same, and nothing is left of the request."""
    loaded = tmp_path / "loaded"
    loaded.touch()
    with serving("--model", tiny, *CELLS, env={"LOADED": str(loaded)}, step_seconds=0.01) as server:
        first = said(server)[0]
        sleep(server)
        loaded.unlink()
        address = server.url.removeprefix("http://")
        with contextlib.closing(HTTPConnection(address)) as connection:
            connection.request("POST", "/v1/completions", json.dumps({**BODY, "max_tokens": 1000}))
            server.wait_for("the model wakes")
        loaded.touch()
        server.wait_for("the model is back")
        assert said(server)[0] == first
        server.wait_until(slots_processing=0, queue_depth=0)


def test_adapters(tiny: Path, tmp_path: Path) -> None:
    """Those of the start and those that came later are there again, not those that left."""
    for seed, name in enumerate(("one", "two", "three"), start=1):
        write_lora(tmp_path / f"{name}.gguf", tiny, seed)
    options = ("--lora", f"{tmp_path / 'one.gguf'}=one", "--lora-dir", tmp_path)
    with serving("--model", tiny, *CELLS, *options) as server:
        for name in ("two", "three"):
            body = {"lora_name": name, "lora_path": f"{name}.gguf"}
            assert server.post(body, "/v1/load_lora_adapter").status_code == 200
        before = [said(server, model=name)[0] for name in ("one", "two")]
        assert before[0] != before[1]
        assert server.post({"lora_name": "three"}, "/v1/unload_lora_adapter").status_code == 200
        sleep(server)
        assert [said(server, model=name)[0] for name in ("one", "two")] == before
        assert server.post({**BODY, "model": "three"}).status_code == 404
        assert server.post({"lora_name": "two"}, "/v1/unload_lora_adapter").status_code == 200


@pytest.mark.parametrize("kind", ["bert", "both"])
def test_vectors(kind: str, tmp_path: Path) -> None:
    """Of a model for nothing else, and of one that writes too."""
    path = tmp_path / "m.gguf"
    options = ()
    if kind == "bert":
        Embedder("bert").write(path)
    else:
        ggufs.write_llama(path, context=2048)
        options = ("--pooling", "mean", *CELLS)
    with serving("--model", path, *options) as server:
        body = {"input": ["the rain in spain", "stays mainly in the plain"]}
        first = server.post(body, "/v1/embeddings").json()
        sleep(server)
        assert server.post(body, "/v1/embeddings").json()["data"] == first["data"]


@pytest.mark.mtmd
@pytest.mark.parametrize("words", ["", SANDBOX])
def test_pictures(tmp_path: Path, words: str) -> None:
    """What reads them comes back too, for a picture that it has not seen."""
    model, _ = write_llava(tmp_path)
    with serving("--model", model, *CELLS, *words.split()) as server:
        first = media.said(server, media.chat(media.user(media.picture())))
        sleep(server)
        assert media.said(server, media.chat(media.user(media.picture()))) == first
        sleep(server)
        assert media.said(server, media.chat(media.user(media.picture(png(seed=5)))))


def test_jobs_and_chats(tiny: Path) -> None:
    """A job that was accepted runs to its end; its events are read after a sleep, too."""
    with serving("--model", tiny, *CELLS, "--chat-template", "chatml") as server:
        chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "seed": 1}
        first = server.post(chat, "/v1/chat/completions").json()["choices"]
        body = {"prompt": "Once", "max_tokens": 5, "seed": 1}
        job = server.post(body, "/v1/jobs").json()["job_id"]
        sleep(server)
        events = http.get(f"{server.url}/v1/jobs/{job}/stream").text
        assert events.count("event: end") == 1 or '"end"' in events
        sleep(server)
        assert server.post(chat, "/v1/chat/completions").json()["choices"] == first
