"""A stream beside the lines of a batch, and a batch beside the same lines sent to llama-server.

    python -m benchmarks.batches [--model FILE] [--rounds 5] [--llama-server FILE [--lines 120]]

First a stream alone and beside 64 lines, in turns: seconds to its first token, and its tokens a
second. Then, with --llama-server, the same lines as a batch here and from 15 clients there, with
400 shared tokens and with nothing shared, and half as many lines. Prints medians and their
quotients; those of CPU seconds hold on a busy machine too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.embeddings import cpu_s
from tests.support.programs.processes import Server, serving
from worker.demo import MODEL_PATH

LINES, CLIENTS, TOKENS = 64, 15, 48
# Between two looks at a batch: each takes CPU time of the worker and of its client.
_LOOK_S = 0.2
URL = "/v1/completions"
WORDS = "river stone garden window silver morning letter thunder island winter".split()


def words(count: int, seed: object) -> str:
    draw = random.Random(str(seed))
    return " ".join(draw.choice(WORDS) for _ in range(count))


def body(prompt: str, tokens: int = TOKENS, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}


class LinesBatch:
    """One that was created."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client, self._url, self._id = client, url, ""

    async def create(self, prompts: list[str], tokens: int) -> None:
        data = "".join(
            json.dumps(
                {"custom_id": f"{n}", "method": "POST", "url": URL, "body": body(each, tokens)}
            )
            + "\n"
            for n, each in enumerate(prompts)
        )
        uploaded = await self._client.post(
            f"{self._url}/v1/files", data={"purpose": "batch"}, files={"file": ("in", data)}
        )
        asked = {"input_file_id": uploaded.json()["id"], "endpoint": URL}
        made = await self._client.post(f"{self._url}/v1/batches", json=asked)
        self._id = made.json()["id"]

    async def state(self) -> dict[str, Any]:
        return (await self._client.get(f"{self._url}/v1/batches/{self._id}")).json()

    async def cancel(self) -> None:
        await self._client.post(f"{self._url}/v1/batches/{self._id}/cancel")
        while (await self.state())["status"] == "cancelling":
            await asyncio.sleep(0.02)

    async def end(self) -> None:
        while (state := await self.state())["status"] in ("validating", "in_progress"):
            await asyncio.sleep(_LOOK_S)
        assert state["status"] == "completed", state


async def stream(client: httpx.AsyncClient, url: str, seed: object) -> tuple[float, float]:
    """Seconds to the first token, and tokens a second behind it."""
    began, times = time.monotonic(), list[float]()
    asked = body(words(150, seed), 64, stream=True)
    async with client.stream("POST", url + URL, json=asked) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                times.append(time.monotonic())
    return times[0] - began, (len(times) - 1) / (times[-1] - times[0])


async def beside(url: str, rounds: int) -> None:
    """In turns, so that a busy machine is as busy for both."""
    async with httpx.AsyncClient(timeout=600) as client:
        await stream(client, url, "warm")
        alone, among = list[tuple[float, float]](), list[tuple[float, float]]()
        lines = 0
        for number in range(rounds):
            alone.append(await stream(client, url, f"a{number}"))
            batch = LinesBatch(client, url)
            await batch.create([words(60, f"{number} {n}") for n in range(LINES)], 200)
            while not (await batch.state())["request_counts"]["completed"]:
                await asyncio.sleep(0.02)  # streams write, prompts are read
            before = (await batch.state())["request_counts"]["completed"]
            among.append(await stream(client, url, f"b{number}"))
            state = await batch.state()
            assert state["status"] == "in_progress", "the batch ended before the stream"
            lines += state["request_counts"]["completed"] - before
            await batch.cancel()
        for place, what in enumerate(("seconds to the first token", "tokens a second")):
            one = statistics.median(each[place] for each in alone)
            other = statistics.median(each[place] for each in among)
            print(f"{what}: alone {one:.3f}, beside {LINES} lines {other:.3f}, {other / one:.3f}")
        print(f"lines that ended meanwhile: {lines}")


async def send(url: str, prompts: list[str]) -> None:
    """From CLIENTS clients, each one after the other."""
    left = iter(prompts)

    async def ask(client: httpx.AsyncClient) -> None:
        for prompt in left:
            answer = await client.post(url + URL, json=body(prompt))
            answer.raise_for_status()

    async with httpx.AsyncClient(timeout=600) as client:
        await asyncio.gather(*(ask(client) for _ in range(CLIENTS)))


@asynccontextmanager
async def llama_server(program: Path, model: Path) -> AsyncGenerator[tuple[str, int]]:
    """Its address and process, once it is ready."""
    port = 18_499
    options = f"-m {model} --port {port} -np {CLIENTS} -c {CLIENTS * 1024} -t 2 --no-webui"
    process = subprocess.Popen(
        [str(program), *options.split()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient() as client:
            while True:
                try:
                    if (await client.get(url + "/health")).status_code == 200:
                        break
                except httpx.HTTPError:
                    pass
                await asyncio.sleep(0.2)
        yield url, process.pid
    finally:
        process.kill()
        process.wait()


async def throughput(
    server: Server, program: Path, model: Path, rounds: int, num_lines: int
) -> None:
    """The same lines here and there, in turns; other prompts in each round."""
    ours = server.url
    async with (
        llama_server(program, model) as (theirs, their_pid),
        httpx.AsyncClient(timeout=600) as client,
    ):
        for shared, count in ((400, num_lines), (0, num_lines // 2)):
            spent: tuple[list[float], list[float]] = ([], [])
            cpu: tuple[list[float], list[float]] = ([], [])
            for number in range(rounds):
                head = words(shared, f"head {number}") if shared else ""
                prompts = [f"{head} {words(40, (number, shared, n))}" for n in range(count)]
                began, before = time.monotonic(), cpu_s(server.pid)
                batch = LinesBatch(client, ours)
                await batch.create(prompts, TOKENS)
                await batch.end()
                spent[0].append(time.monotonic() - began)
                cpu[0].append(cpu_s(server.pid) - before)
                began, before = time.monotonic(), cpu_s(their_pid)
                await send(theirs, prompts)
                spent[1].append(time.monotonic() - began)
                cpu[1].append(cpu_s(their_pid) - before)
            for what, both in (("s", spent), ("CPU s", cpu)):
                quotients = [there / here for here, there in zip(*both, strict=True)]
                here, there = map(statistics.median, both)
                print(
                    f"{count} lines, {shared} shared words: {here:.1f} {what} here, "
                    f"{there:.1f} there, quotient {statistics.median(quotients):.2f} "
                    f"({min(quotients):.2f} to {max(quotients):.2f})",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, default=MODEL_PATH)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--lines", type=int, default=120)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        options = ("-t", "2", "-np", f"{CLIENTS}", "-c", f"{CLIENTS * 1024}")

        def serve() -> Any:
            return serving("--model", given.model, *options, "--state-dir", state)

        server: Server
        with serve() as server:
            asyncio.run(beside(server.url, given.rounds))
            if given.llama_server is not None:
                work = throughput(
                    server, given.llama_server, given.model, given.rounds, given.lines
                )
                asyncio.run(work)


if __name__ == "__main__":
    main()
