"""A streamed chat in this process, and each function of `worker` that begins or ends meanwhile."""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import msgspec

from worker import log
from worker.cli.arguments import serve as command
from worker.cli.model import fetch_models
from worker.cli.options import settings_from
from worker.lifecycle.state import State
from worker.lifecycle.worker import Worker
from worker.service import server
from worker.settings import Settings

ROOT = Path(server.__file__).parent.parent
_PATH = "/v1/chat/completions"
_BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "What is 3 plus 4?"}], "max_tokens": 8, "stream": True,
    "temperature": 0,
}  # fmt: skip
_WARM = 2  # requests before the one that is counted
_MOST_S = 120.0
_POLL_S = 0.02
_AFTER_S = 0.2  # what follows an answer takes milliseconds: its cells are kept, its record closed


class Function(msgspec.Struct, frozen=True):
    """One code object. file: below worker/"""

    file: str
    name: str
    line: int


class Call(msgspec.Struct):
    """One run of a function, with those that it called, in their order."""

    function: Function
    calls: list[Call] = []

    def __iter__(self) -> Iterator[Call]:
        """It and all below it, as they began."""
        yield self
        for each in self.calls:
            yield from each


class Recorder:
    """What all threads call while it is on; `threading.setprofile` needs it before they start."""

    def __init__(self) -> None:
        self.is_on = False
        self.roots: list[Call] = []
        self._stacks: dict[int, list[Call]] = {}
        self._known: dict[CodeType, Function | None] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self.is_on or event not in ("call", "return"):
            return
        if frame.f_code not in self._known:
            self._known[frame.f_code] = _function_of(frame.f_code)
        function = self._known[frame.f_code]
        if function is None:
            return
        stack = self._stacks.setdefault(threading.get_ident(), [])
        if event == "return":
            if stack:  # else it began before
                stack.pop()
            return
        call = Call(function)
        (stack[-1].calls if stack else self.roots).append(call)
        stack.append(call)

    def __iter__(self) -> Iterator[Call]:
        for each in self.roots:
            yield from each


def _function_of(code: CodeType) -> Function | None:
    path = Path(code.co_filename)
    if not path.is_relative_to(ROOT):
        return None
    return Function(path.relative_to(ROOT).as_posix(), code.co_qualname, code.co_firstlineno)


def record() -> Recorder:
    """A streamed chat over the demo model, warm. Raises RuntimeError if it is not answered."""
    log.configure("console", "error")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    path, settings = fetch_models(settings_from(parser.parse_args(["--port", "0"])))
    recorder = Recorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        asyncio.run(_play(settings, path, recorder))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return recorder


async def _play(settings: Settings, path: Path, recorder: Recorder) -> None:
    made: list[Worker] = []

    class KnownWorker(Worker):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    with mock.patch.object(server, "Worker", KnownWorker):
        serving = asyncio.create_task(server.serve(settings, path))
        await asyncio.sleep(0)
    (worker,) = made
    async with asyncio.timeout(_MOST_S):
        # Once it is ready and idle, llama.cpp is asked for the plan.
        while worker.state is not State.READY or not worker.loaded.plan.is_asked:
            await asyncio.sleep(_POLL_S)
        for number in range(_WARM + 1):
            recorder.is_on = number == _WARM
            await asyncio.to_thread(_ask, worker.url)
        await asyncio.sleep(_AFTER_S)
        recorder.is_on = False
        worker.request_stop("all is counted")
        await serving


def _ask(url: str) -> None:
    place = urlsplit(url)
    with closing(http.client.HTTPConnection(str(place.hostname), place.port)) as connection:
        connection.request("POST", _PATH, json.dumps(_BODY), {"Content-Type": "application/json"})
        answer = connection.getresponse().read()
    if b"[DONE]" not in answer:
        raise RuntimeError(answer.decode(errors="replace"))
