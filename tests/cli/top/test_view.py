"""What `worker top` draws: it fits, and what a server says cannot draw anything itself."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console, Group

from tests.support.cases import for_each
from tests.support.programs.watched import doing, request
from worker.cli.top.view import view
from worker.requests.views import LiveReply

HOSTILE = "\x1b[31mred\x1b]0;title\x07\r\n[bold]x[/bold]\x9b2J‮日本語\u200b"


def drawn(
    said: Any,
    width: int = 80,
    height: int | None = 24,
    *,
    problem: str | None = None,
    encoding: str = "utf-8",
    **terminal: Any,
) -> str:
    """What is printed for an answer; with `problem` for one of a worker that is gone."""
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, errors="replace", newline="")
    console = Console(file=out, width=width, height=height, highlight=False, **terminal)
    reply = msgspec.convert(said, LiveReply)
    options = console.options.update_height(height) if height else console.options
    console.print(Group(*view("http://gpu7:8080", reply, options, problem or "")))
    out.flush()
    return raw.getvalue().decode(encoding)


def shown(said: Any, width: int = 80, height: int | None = 24, **more: Any) -> list[str]:
    """The same as lines, without spaces behind them; none is wider than the terminal."""
    lines = drawn(said, width, height, **more).removesuffix("\n").split("\n")
    assert all(cell_len(line) <= width for line in lines)
    return [line.rstrip() for line in lines]


def line_of(lines: list[str], start: str) -> str:
    """The line that begins so."""
    return next(line for line in lines if line.startswith(start))


def busy(count: int) -> dict[str, Any]:
    """Many requests, and a full log."""
    states = ("writing", "reading", "waiting")
    data = [request(f"req-{n:08x}", states[n % 3], sequences=1 + n % 2) for n in range(count)]
    log = [["2026-11-22T10:30:00Z", "warning", "serve", f"event {n}", ""] for n in range(50)]
    said = doing(*data, log=log)
    return said | {"recent": said["recent"] * 20}


def hostile() -> dict[str, Any]:
    """A worker whose every word attacks."""
    said = busy(9)
    for each in (*said["data"], *said["recent"]):
        each |= {"id": HOSTILE, "route": HOSTILE}
    said["worker"] |= {"model": HOSTILE, "uptime_s": 1e300}
    said["worker"]["totals"]["prompt_tokens"] = 10**18
    said["data"][0] |= {"age_s": 1e300, "tokens_per_second": -1e300, "read_tokens": -5}
    said["speeds"] = [[0, -1e300, 1e300], [1, 1e300, 0]]
    said["log"] = [[HOSTILE] * 5] * 50
    return said


@for_each("width", [1, 20, 40, 60, 80, 81, 109, 110, 140, 250])
@for_each("said", [doing(), busy(3), busy(60), hostile()])
def test_it_fits(said: dict[str, Any], width: int) -> None:
    """No line is wider and there are no more lines than the terminal has, which are eight at least.

    rich cuts what is too much for a lower one."""
    for height in (*range(8, 20), 24, 31, 100):
        assert len(shown(said, width, height)) <= height
    assert len(shown(said, width, None)) > len(said["data"])


def test_what_a_reader_asks() -> None:
    """State, how far each request is, speeds, cells, memory, totals, log."""
    lines = shown(doing(request("req-a"), request("req-b", "writing"), request("req-c", "waiting")))
    assert lines[0] == "ready  demo  up 1:02:05  http://gpu7:8080"
    assert lines[1] == "2 running, 1 waiting, 4 slots, memory 88.0 MiB of 205.0 MiB planned"
    assert "812 live, 1,200 cached, 2,084 free" in line_of(lines, "cells")
    assert line_of(lines, "speed") == "speed   590.0 read/s, 44.5 written/s"
    assert "120 requests, 2 errors, 123,456 read, 4,567 cached, 8,910 written" in line_of(
        lines, "totals"
    )
    assert "memory 64.0 MiB of 8.0 GiB" in line_of(lines, "cache")
    assert line_of(lines, "req-a").split()[1:] == [
        "reading", "1,200", "of", "4,000", "200", "0.40", "s", "1.25", "s",
    ]  # fmt: skip
    assert line_of(lines, "req-b").split()[1:6] == ["writing", "12", "of", "512", "12.3"]
    assert line_of(lines, "req-c").split()[1] == "waiting"
    assert line_of(lines, "req-before").split()[1:5] == ["stop", "30", "+", "50"]
    assert lines[-1] == "10:30:00 serve ready model=demo"


def test_a_wide_terminal_shows_more() -> None:
    """The route stands behind what fits everywhere."""
    assert "POST" not in line_of(shown(doing(request("req-a")), width=80), "req-a")
    line = line_of(shown(doing(request("req-a")), width=140), "req-a")
    assert line.endswith("POST /v1/chat/completions")


def test_what_does_not_fit_is_counted() -> None:
    """Of many requests the oldest are shown, and how many there are besides; the log stays."""
    lines = shown(busy(200))
    hidden = next(line for line in lines if "… and" in line)
    count = sum(line.startswith("req-0") for line in lines)
    assert hidden == f"  … and {200 - count} more"
    assert lines[-1].endswith("event 49")


def test_a_worker_that_is_gone() -> None:
    """The reason is told, and what was seen last is still there."""
    lines = shown(doing(request("req-a")), problem="It is gone.")
    assert lines[0].startswith("gone  demo")
    assert lines[1] == "It is gone."
    assert line_of(lines, "req-a")


@pytest.mark.parametrize("color", [None, "truecolor"])
def test_nothing_of_a_server_controls_the_terminal(color: Any) -> None:
    """Ids, routes, models and log lines are text: no sequence, no markup, no second line."""
    for problem in (None, HOSTILE):
        out = drawn(hostile(), 200, None, problem=problem, force_terminal=True, color_system=color)
        assert "[bold]x[/bold]" in out
        for attack in ("\x1b[31mred", "\x1b]0;", "\x07", "\r", "\x9b", "‮", "\u200b"):
            assert attack not in out
        assert ("\x1b" in out) == (color is not None)


def test_no_speed_yet() -> None:
    """A worker that was just started has none."""
    assert line_of(shown(doing(speeds=[])), "speed") == "speed   0.0 read/s, 0.0 written/s"


def test_why_a_prompt_was_read_again() -> None:
    """In 120 columns, which is what a pipe gets, an ended request has its reason and its route."""
    lines = shown(doing(), width=120, height=None)
    assert line_of(lines, "req-before").split()[-3:] == ["date_changed", "POST", "/v1/completions"]
