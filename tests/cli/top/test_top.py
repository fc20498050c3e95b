"""`worker top` in pipes and in a terminal, over a server that says what the test wants."""

from __future__ import annotations

import argparse
import json
import signal
from typing import Any

import pytest

from tests.support.programs.terminals import ALTERNATE, NORMAL, terminal
from tests.support.programs.watched import doing, request, watched
from worker.cli.address import Address, address_from
from worker.cli.main import main

KEY = "not-so-secret"


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key comes from the environment of the tests."""
    for name in ("LLAMA_API_KEY", "LLORCH_API_TOKEN", "LLAMA_ARG_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def top(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    code = main(["top", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Into a pipe the view is printed once, whole, in lines that are not folded."""
    with watched() as server:
        server.says = doing(*(request(f"req-{number}") for number in range(60)))
        for words in ([server.url], [server.url, "--once"]):
            code, out, err = top(capsys, *words)
            assert (code, err) == (0, "")
            assert sum(line.startswith("req-") for line in out.splitlines()) == 61
            assert "\x1b" not in out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` prints what the worker says, in one line."""
    with watched() as server:
        server.says = doing(request("req-ä"), new={"field": 1})
        code, out, err = top(capsys, server.url, "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert json.loads(out) == server.says


def test_the_key(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent where one is given, by option or variable; no error shows it."""
    with watched() as server:
        server.key = KEY
        assert top(capsys, server.url, "--api-key", KEY)[0] == 0
        code, _, err = top(capsys, server.url)
        assert code == 1
        assert "asks for a key. Give it with" in err
        code, _, err = top(capsys, server.url, "--api-key", "another")
        assert code == 1
        assert "has another key" in err
        assert "another\n" not in err
        monkeypatch.setenv("LLAMA_API_KEY", KEY)
        assert top(capsys, server.url)[0] == 0


@pytest.mark.parametrize(
    ("status", "says", "words"),
    [
        (404, b"{}", "has no /v1/requests"),
        (503, b'{"error": {"message": "The model is loading."}}',
         "answers 503: The model is loading."),
        (500, b"\xff", "answers 500: Internal Server Error."),
        (500, b'{"error": {"message": "\\u001b[31m\\n"}}', "answers 500: "),
        (200, b"<html>", "something else, or an older worker"),
        (200, b"[1]", "not understood"),
        (200, b"", "something else, or an older worker"),
    ],
)  # fmt: skip
def test_other_answers(
    status: int, says: bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is no worker's answer is one sentence and exit code 1."""
    with watched() as server:
        server.status, server.says = status, says
        code, out, err = top(capsys, server.url)
    assert (code, out) == (1, "")
    assert err.startswith("error: NOT_WATCHED: ")
    assert words in err
    assert "\x1b" not in err
    assert err.count("\n") == 1


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """The next step is told."""
    with watched() as server:
        url = server.url
    code, _, err = top(capsys, url)
    assert code == 1
    assert f"No worker answers at {url}" in err
    assert "`worker serve`" in err


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://gpu7/", "http://gpu7"),
        ("gpu7:9000", "http://gpu7:9000"),
        ("https://host/worker/1/", "https://host/worker/1"),
        ("[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_addresses(text: str, url: str) -> None:
    """With and without scheme, port and prefix."""
    assert address_from(argparse.Namespace(url=text)) == Address(url, None)


def test_a_prefix_and_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Both are asked for, as behind a proxy."""
    with watched() as server:
        assert top(capsys, f"localhost:{server.server_port}/worker/1/")[0] == 0
        assert server.asked == [("/worker/1/v1/requests", f"localhost:{server.server_port}")]


@pytest.mark.parametrize(
    "text",
    ["", "ftp://x", "http://", "http://x:99999", "http://x:0", "http://u:p@x", "a b", "http://ä",
     "http://x/\r\nHost: y", "[::1", "unix:"],
)  # fmt: skip
def test_no_addresses(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Anything else is a wrong command line, and nothing is asked."""
    code, out, err = top(capsys, text)
    assert (code, out) == (2, "")
    assert "is no worker's address. Write http://HOST:PORT," in err


@pytest.mark.parametrize(
    "more",
    [
        {"data": [{"id": "req-a"}]},
        {"worker": {"state": "ready"}},
        {"speeds": [[1, 2]]},
        {"data": [request("req-a", "\x1b[31mred")]},
    ],
    ids=str,
)
def test_another_version(more: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """What is more is not looked at; what does not fit names the command that will understand."""
    with watched() as server:
        server.says = doing(request("req-a", new=1), new={"field": 1})
        assert top(capsys, server.url)[0] == 0
        server.says = doing(**more)
        code, out, err = top(capsys, server.url)
        assert top(capsys, server.url, "--json")[0] == 0
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "says what is not understood here: " in err
    assert "Watch it with `worker top` of its own version." in err
    assert "\x1b" not in err


@pytest.mark.parametrize("how", ["q", "ctrl-c", "sigterm"])
def test_the_terminal_is_given_back(how: str) -> None:
    """However it is left: normal screen, cursor, echo and lines as before, exit code 0."""
    with watched() as server, terminal("top", server.url) as screen:
        screen.wait_for(lambda text: "req-before" in text)
        assert ALTERNATE in screen.output
        assert screen.mode != screen.before
        if how == "sigterm":
            screen.process.send_signal(signal.SIGTERM)
        else:
            screen.press(b"q" if how == "q" else b"\x03")
        assert screen.leave() == 0
        assert screen.output.rindex(NORMAL) > screen.output.rindex(ALTERNATE)
        assert b"\x1b[?25h" in screen.output[screen.output.rindex(b"\x1b[?25l") :]
        assert screen.mode == screen.before
        assert "Traceback" not in screen.text


def test_a_worker_that_dies_and_comes_back() -> None:
    """It is shown as gone, with the reason, and then as live again; other keys do nothing."""
    with watched() as server:
        port = server.server_port
        server.says = doing(request("req-first"))
        with terminal("top", server.url) as screen:
            screen.wait_for(lambda text: "req-first" in text)
            server.shutdown()
            server.server_close()
            screen.wait_for(lambda text: "gone  demo" in text and "Gone for" in text, anew=True)
            screen.press(b"x\x1a\x1b[A")
            with watched(port) as again:
                again.says = doing(request("req-second"))
                screen.wait_for(lambda text: "req-second" in text, anew=True)
                screen.wait_for(lambda text: "ready  demo" in text, anew=True)
            screen.press(b"q")
            assert screen.leave() == 0


def test_it_waits_for_a_worker_that_is_not_there_yet() -> None:
    """In a terminal it may be started before the worker."""
    with watched() as server:
        port = server.server_port
    with terminal("top", f"127.0.0.1:{port}") as screen:
        screen.wait_for(lambda text: "No worker answers" in text)
        with watched(port):
            screen.wait_for(lambda text: "req-before" in text)
        screen.press(b"q")
        assert screen.leave() == 0


def test_another_program_is_not_waited_for() -> None:
    """What will not get better by waiting ends the command, after the terminal is given back."""
    with watched() as server:
        server.key = KEY
        with terminal("top", server.url) as screen:
            assert screen.leave() == 1
            assert "error: NOT_WATCHED: " in screen.text
            assert "asks for a key" in screen.text
            assert screen.mode == screen.before


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (140, 40), (40, 8)])
def test_a_full_screen(columns: int, lines: int) -> None:
    """Nothing is drawn beyond the terminal's size, with more requests than it has lines."""
    with watched() as server:
        server.says = doing(*(request(f"req-{number:03}") for number in range(200)))
        with terminal("top", server.url, columns=columns, lines=lines) as screen:
            screen.wait_for(lambda text: text.count("req-000") > 2)
            drawn = screen.frame
            screen.press(b"q")
            assert screen.leave() == 0
    assert len(drawn) == lines
    assert max(map(len, drawn)) <= columns
    assert any(line.startswith("  … and 1") for line in drawn)


def test_a_terminal_that_cannot_draw() -> None:
    """It gets the view once, as a pipe does."""
    with watched() as server, terminal("top", server.url, TERM="dumb") as screen:
        assert screen.leave() == 0
        assert "req-before" in screen.text
        assert b"\x1b" not in screen.output


def test_another_size() -> None:
    """A terminal that gets wider shows more at once."""
    with watched() as server:
        server.says = doing(request("req-a"))
        with terminal("top", server.url) as screen:
            screen.wait_for(lambda text: "req-a" in text)
            assert "chat/completions" not in screen.text
            screen.resize(140, 40)
            screen.wait_for(lambda text: "chat/completions" in text)
            screen.press(b"q")
            assert screen.leave() == 0
