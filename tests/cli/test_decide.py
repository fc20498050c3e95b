"""`worker decide`: what it asks, and what it shows of the answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from worker.cli.main import main

TOLD = {
    "label_mass": 0.9, "prompt_version": 1, "orders": 2, "flips": 0, "mode": "letters",
    "calibration": None,
}  # fmt: skip
REPLY = {
    "model": "m",
    "answers": {
        "predicate": {"type": "noul", "noul": 0.75, "diagnostics": TOLD},
        "choice": {
            "type": "choice", "choice": "lifts", "confidence": 0.5,
            "probabilities": {"lifts": 0.9, "no\x1b[2Jbody": 0.1}, "diagnostics": TOLD,
        },
        "score": {
            "type": "score", "score": 1.2, "confidence": 0.4, "legend": {"0": "low", "1": "high"},
            "probabilities": {"0": 0.2, "1": 0.8},
            "diagnostics": {**TOLD, "calibration": {"temperature": 1.5}},
        },
    },
    "usage": {"input_tokens": 9, "output_tokens": 0},
}  # fmt: skip


@contextmanager
def answering(status: int, reply: object) -> Generator[tuple[str, list[Any]]]:
    """A server that gives this reply, and the requests that it got."""
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            seen.append((self.path, self.headers.get("authorization"), json.loads(body)))
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


ALL = ("--predicate", "It is broken.", "--choice", "lifts, nobody", "--score", "low,high",
       "--question", "Who?")  # fmt: skip


def test_what_is_asked_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """One request with all questions; a line with a share for each option, and no control codes."""
    with answering(200, REPLY) as (url, seen):
        assert main(["decide", "The lift is stuck.", *ALL, "--url", url, "--api-key", "k"]) == 0
    path, key, body = seen[0]
    assert (path, key) == ("/v1/systemone", "Bearer k")
    assert body["state"] == "The lift is stuck."
    assert body["questions"] == {
        "predicate": {"type": "noul", "instructions": "It is broken."},
        "choice": {"type": "choice", "instructions": "Who?",
                   "criteria": {"lifts": None, "nobody": None}},
        "score": {"type": "score", "instructions": "Who?", "criteria": ["low", "high"]},
    }  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split() for line in lines]
    assert shown[0] == ["It", "is", "broken."]
    assert ["true", "75.00%", "█" * 22] in shown
    assert ["false", "25.00%", "█" * 8] in shown
    assert ["high", "80.00%", "█" * 24] in shown
    assert any("temperature 1.50" in line for line in lines)
    assert any("not calibrated" in line for line in lines)
    assert not any("\x1b[2J" in line for line in lines)


def test_json_is_the_answer_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints what the worker answered, with all digits."""
    with answering(200, REPLY) as (url, _):
        assert main(["decide", "text", *ALL, "--url", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == REPLY


@pytest.mark.parametrize(
    ("status", "reply", "told"),
    [
        (422, {"detail": [{"loc": ["body", "state"], "msg": "state is long.", "type": "x"}]},
         "state is long."),
        (401, {"error": {"message": "A key is needed."}}, "A key is needed."),
        (404, {"what": 1}, "answers 404 to /v1/systemone"),
        (200, {"what": 1}, "is not a worker"),
    ],
)  # fmt: skip
def test_a_refusal_is_told(
    status: int, reply: object, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the server says is the error, in either API's form."""
    with answering(status, reply) as (url, _):
        assert main(["decide", "text", "--predicate", "It rains.", "--url", url]) == 1
    error = capsys.readouterr().err
    assert "DECIDE_FAILED" in error
    assert told in error


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Nothing is asked."),
        (["--choice", "one"], "--choice needs at least two different options."),
        (["--score", "a,a"], "--score needs at least two different options."),
        (["--predicate", "x", "--question", "y"], "--question belongs to --choice or --score."),
        (["--predicate", "\udcff"], "The text of --predicate is not UTF-8 at byte 0."),
        (["--choice", "a,\udcff"], "The text of --choice is not UTF-8 at byte 0."),
        (["--choice", "a,b", "--question", "\udcff"], "The text of --question is not UTF-8"),
    ],
)
def test_mistakes_are_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A question that cannot be asked is refused before a model is loaded."""
    assert main(["decide", "text", *words]) == 2
    assert told in capsys.readouterr().err


def test_options_with_commas(capsys: pytest.CaptureFixture[str]) -> None:
    """Given several times, each is one option with its commas."""
    words = ("--choice", "yes, now", "--choice", "no")
    with answering(200, {"answers": {}}) as (url, seen):
        assert main(["decide", "text", *words, "--url", url]) == 0
    assert list(seen[0][2]["questions"]["choice"]["criteria"]) == ["yes, now", "no"]
    assert capsys.readouterr().out == ""


def test_an_empty_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing can be judged of no text."""
    assert main(["decide", "  ", "--predicate", "It rains."]) == 2
    assert "There is no text to judge." in capsys.readouterr().err
