"""Streams with pictures beside each other and beside others; what is kept of a picture."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.api.media.asked import (
    CHAT,
    ROWS,
    Body,
    agree,
    answered,
    chat,
    picture,
    question,
    said,
    told,
    user,
    words,
)
from tests.support.metrics import scrape
from tests.support.models.projectors import SEEING, blank_png, png
from tests.support.programs.processes import Server, serving, until
from worker.limits import PIXELS

pytestmark = pytest.mark.mtmd

LONG = "what do you see here, and what not? " * 8


def encoded(server: Server) -> int:
    return int(scrape(server.url)["worker_media_encoded_total"])


def at_once(server: Server, bodies: list[Body], ask: Callable[[Server, Body], Any] = said) -> Any:
    """All their answers, asked at the same time."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(partial(ask, server), bodies))


@pytest.mark.parametrize("name", SEEING)
def test_eight_streams(tmp_path: Path, name: str) -> None:
    """With pictures of different sizes and numbers, beside texts: each says what it says alone."""
    model = SEEING[name](tmp_path)[0]
    bodies = [
        chat(user(*[picture(png(28 + 28 * (i % 2), 28, i))] * (1 + i % 3), words(f"what is {i}?")))
        for i in range(8)
    ]
    bodies += [chat(user(words(f"what is {i}?" * (1 + i)))) for i in range(4)]
    bodies = [{**body, "max_tokens": 12, "ignore_eos": True} for body in bodies]
    options = ("--ctx-size", "4096", "-np", "12", "--cache-ram", "0")
    with serving("--model", model, *options) as server:
        alone = [told(server, body) for body in bodies]
        assert all(map(agree, alone, at_once(server, bodies, told)))
    with serving("--model", model, *options) as server:
        assert all(map(agree, alone, at_once(server, bodies, told)))


@pytest.mark.parametrize("name", SEEING)
def test_streams_that_are_put_back(tmp_path: Path, name: str) -> None:
    """Where the cells do not suffice for all, some read their pictures again, in small steps."""
    model = SEEING[name](tmp_path)[0]
    bodies = [
        chat(user(picture(png(28, 28, i)), words("so? " * 8)), max_tokens=90, ignore_eos=True)
        for i in range(6)
    ]
    with serving("--model", model, "-c", "512", "-np", "6", "-b", "8", "-ub", "8") as server:
        alone = [told(server, body) for body in bodies]
        for _ in range(50):  # on a busy machine they may come one after the other
            assert all(map(agree, alone, at_once(server, bodies, told)))
            if scrape(server.url)["worker_preemptions_total"]:
                return
    pytest.fail("nobody was put back")


def test_the_second_turn(seeing: Server) -> None:
    """It goes on from the cells of the first one, the picture's among them."""
    first = chat(user(picture(), words(LONG)))
    reply = answered(seeing, first)
    then = {"role": "assistant", "content": reply["choices"][0]["message"]["content"]}
    before = encoded(seeing)
    second = answered(seeing, chat(*first["messages"], then, user(words("and now?"))))
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert ROWS < cached <= reply["usage"]["total_tokens"]
    assert encoded(seeing) == before


def test_several_answers(seeing: Server) -> None:
    """n=2 reads the prompt once."""
    alone = answered(seeing, question())
    both = answered(seeing, question(n=2))
    texts = [choice["message"]["content"] for choice in both["choices"]]
    assert texts == [alone["choices"][0]["message"]["content"]] * 2
    assert both["usage"]["prompt_tokens"] == alone["usage"]["prompt_tokens"]


def test_one_picture_of_many_requests(seeing: Server) -> None:
    """It is encoded once."""
    before = encoded(seeing)
    data = png(seed=77)
    answers = at_once(seeing, [question(data)] * 8)
    assert len(set(answers)) == 1
    assert encoded(seeing) == before + 1


def test_a_restart(llava: Path, tmp_path: Path) -> None:
    """What lies in the folder is not encoded again, and the prompt's state is there; a damaged file
    is encoded, and put aside."""
    options = ("--model", llava, "--ctx-size", "1024", "--cache-dir", tmp_path)
    body = chat(user(picture(), words(LONG)))
    with serving(*options) as server:
        answer = said(server, body)
        assert encoded(server) == 1
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait() == 0
    (kept,) = [path for each in tmp_path.glob("media-*") for path in each.iterdir()]
    with serving(*options) as server:
        again = answered(server, body)
        assert again["choices"][0]["message"]["content"] == answer
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > ROWS
        assert encoded(server) == 0
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with serving(*options) as server:
        assert said(server, body) == answer
        assert encoded(server) == 1
        assert "a damaged medium was put aside" in "\n".join(server.lines)
    assert kept.read_bytes() == whole


def test_no_guesses(llava: Path) -> None:
    """What follows a picture is not guessed: a guess knows tokens only."""
    with serving("--model", llava, "--ctx-size", "1024", "--draft-model", llava) as server:
        for part, is_guessed in ((words("so?"), True), (picture(), False)):
            body = chat(user(part, words("what?")), max_tokens=60, ignore_eos=True, seed=None)
            counts = [answered(server, body)["timings"].get("draft_n", 0) for _ in range(3)]
            assert any(counts) is is_guessed


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc to find the child in")
def test_a_child_that_dies(llava: Path) -> None:
    """Its request alone is a 400; streams beside it go on, and the next picture is read."""
    with (
        serving("--model", llava, "--ctx-size", "2048", "-np", "4") as server,
        ThreadPoolExecutor(2) as pool,
    ):
        expected = said(server, question(max_tokens=24, ignore_eos=True))
        beside = chat(user(words("hello")), max_tokens=400, ignore_eos=True)
        alone = said(server, beside)
        reply = None
        for side in range(7000, 6980, -1):  # another one where it was read before it could die
            stream = pool.submit(said, server, beside)
            child = reading_child(server.pid)
            before = cpu_ticks(child)
            asked = pool.submit(server.post, question(blank_png(side, 7000)), CHAT)
            until(lambda child=child, before=before: cpu_ticks(child) > before + 2)
            os.kill(child, signal.SIGKILL)
            reply = asked.result()
            assert stream.result() == alone
            if reply.status_code != 200:
                break
        assert reply is not None
        error = reply.json()["error"]
        assert (reply.status_code, error["code"], error["param"]) == (400, "bad_medium", "messages")
        assert "died (SIGKILL, perhaps out of memory)" in error["message"]
        assert said(server, question(max_tokens=24, ignore_eos=True)) == expected
        assert said(server, question(png(seed=5)))


def reading_child(pid: int) -> int:
    """The process that reads media: the keeper's child, which is the worker's."""
    found = children(pid)
    until(lambda: any(children(each) for each in found))
    return next(child for each in found for child in children(each))


def children(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [int(word) for each in threads for word in (each / "children").read_text().split()]


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_the_largest_picture(seeing: Server) -> None:
    """It is read within its memory."""
    side = int(PIXELS.most**0.5)
    assert said(seeing, question(blank_png(side, side)))


def test_what_cannot_fit(seeing: Server) -> None:
    """Many pictures, or a few and a long text, are refused before a vector is made of them."""
    before = encoded(seeing)
    many = [picture(png(28, 28, seed)) for seed in range(1000, 1064)]
    text = words("so? " * 1500)
    for parts in ((*many, text), (text, many[0])):
        reply = seeing.post(chat(user(*parts)), CHAT)
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"]["code"] == "context_length_exceeded"
    assert encoded(seeing) == before
