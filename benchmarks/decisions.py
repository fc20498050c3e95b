"""Decisions beside llama-server: `python -m benchmarks.decisions MODEL [--llama-server FILE]`.

One table. What is measured:

answers   50 questions about a state of about 1,000 tokens: one POST /v1/decisions, beside 50 chat
          requests for the logprobs of the same prompts' first token, with the prompt cache on, one
          after another and four at once. Both servers have the same flags and take turns; the state
          is new in each round. --asked choice: with four options, which llama-server shows in one
          order and the worker in --orders
layouts   CPU time of statements with a cached state, in streams and in the unified layout: there
          all rows of a step share tiles of attention
logprobs  each option's probability beside those of logprobs for the same tokens
suffix    one statement whose state is cached, beside a decode of its rows in a bare loop
gap       longest gap of four streams, alone and beside 400 statements about 2,000 tokens
stall     the same in this process, for an engine whose clock is CPU time by threads: what others
          on the machine do changes it less. 60 statements; its time is --stall-ms x 4
noise     differences of ln p between cold, cached, and beside others, of yes to no

Times are of the clock and of the servers' CPU time: on a busy machine the second tells more.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import httpx
import msgspec
import numpy as np

from benchmarks.adapters import wait
from benchmarks.embeddings import VectorServer, cpu_s, quotients
from benchmarks.peers.endpoints import HOST
from benchmarks.peers.processes import free_port, started
from tests.support.facts import facts_over
from worker.api.decisions.question import AnswerOption, Decision, TypedQuestion
from worker.api.decisions.reading import Plan, plan_of
from worker.api.intake.chat.templates import format_of, has_template
from worker.budget import UNBOUNDED
from worker.cache.store import Store
from worker.chat.message import Message
from worker.engine.engine import Engine
from worker.engine.output import TokenLogprob
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.scoring import Score, Scored
from worker.limits import LOGPROBS
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions

NUM_STREAMS, MANY = 4, 400
WORDS = ("lift", "door", "cable", "button", "floor", "motor", "guest", "ticket", "noon", "key")
FIRST = GenerationParams(max_tokens=1, logprobs=LOGPROBS.most)
ECHO = GenerationParams(max_tokens=0, prompt_logprobs=0)
STREAM = GenerationParams(max_tokens=4_000)
TRUTH = (AnswerOption(True, "true"), AnswerOption(False, "false"))
REPAIRS = ("it is broken", "it is in repair", "it works", "nothing is said")
Asked = Literal["statement", "choice"]


def state_of(seed: int, words: int) -> str:
    """A text that no request had before."""
    draw = np.random.default_rng(seed)
    return " ".join(
        f"{'The' if n % 9 == 0 else 'and'} {WORDS[draw.integers(10)]} {draw.integers(100)}"
        f"{'.' if n % 9 == 8 else ''}"
        for n in range(words // 3)
    )


def statements(count: int) -> list[str]:
    return [f"The {WORDS[n % 10]} {n} is out of order." for n in range(count)]


def nothing(_: Sequence[Score]) -> Iterable[int]:
    return ()


class ScoringBench:
    """An engine over a model in this process."""

    def __init__(
        self,
        path: str,
        threads: int,
        *,
        num_cells: int = 16_384,
        num_slots: int = 4,
        clock: Callable[[], float] = time.perf_counter,
        max_stall: float = 0.4,
    ) -> None:
        options = ContextOptions(
            num_cells=num_cells, num_slots=num_slots, threads=threads, threads_batch=threads
        )
        self.backend = LlamaBackend.open(Path(path), LoadOptions(), options)
        self.facts = facts_over(self.backend, path)
        self.chat = format_of(self.facts) if has_template(self.facts) else None
        store = Store(1 << 29, needs_rest=self.backend.shape.needs_rest)
        self.engine = Engine(self.backend, clock, store, max_stall=max_stall)

    def plan(self, state: str, texts: Iterable[str], *, again: bool = False) -> Plan:
        """again: near ties are read once more"""
        asked = tuple(TypedQuestion("statement", "q", text, TRUTH) for text in texts)
        decision = Decision((Message(role="user", content=state),), asked)
        plan = plan_of(decision, self.facts, self.chat, UNBOUNDED)
        if again:
            return plan
        request = msgspec.structs.replace(plan.request, doubtful=nothing)
        return msgspec.structs.replace(plan, request=request)

    def score(self, plan: Plan, streams: int = 0) -> Scored:
        """streams: so many write meanwhile"""
        for number in range(streams):
            prompt = Prompt(tuple(range(100 + number, 140 + number)))
            self.engine.add(Request(id=str(number), prompt=prompt, params=STREAM))
        for _ in range(streams and 6):
            self.engine.step()
        self.engine.add(plan.request)
        found: Scored | None = None
        while found is None:
            for delta in self.engine.step():
                if isinstance(delta, Scored):
                    found = delta
        for number in range(streams):
            self.engine.abort(str(number))
        if found.error is not None:
            raise found.error
        return found

    def logprobs(self, tokens: tuple[int, ...], params: GenerationParams) -> list[TokenLogprob]:
        """All that a request alone says."""
        self.engine.add(Request(id="alone", prompt=Prompt(tokens), params=params))
        found: list[TokenLogprob] = []
        while not self.engine.is_idle:
            for delta in self.engine.step():
                found += (*(delta.prompt_logprobs or ()), *delta.logprobs)
        return found

    def forget(self) -> None:
        """All states."""
        self.engine.empty()
        shape = self.backend.shape
        self.engine = Engine(
            self.backend, time.perf_counter, Store(1 << 29, needs_rest=shape.needs_rest)
        )
        for slot in range(shape.num_slots):
            self.backend.drop(slot)


def logprobs(bench: ScoringBench) -> str:
    """The largest differences of a probability to those of a chat's first token, which is computed
    in the same pieces, and of echo, which computes the whole text at once."""
    plan = bench.plan(state_of(1, 60), statements(3))
    readings = plan.readings(bench.score(plan).scores)
    worst = {"first token": 0.0, "echo": 0.0}
    for suffix, asked, reading in zip(plan.request.suffixes, plan.asked, readings, strict=True):
        tokens = (*plan.request.prompt.tokens, *suffix.tokens)
        first = bench.logprobs(tokens, FIRST)
        top = dict(first[-1].top)
        echo: dict[int, float] = {}
        for token in suffix.candidates:
            echo[token] = bench.logprobs((*tokens, token), ECHO)[-1].logprob
        for name, found in (("first token", top), ("echo", echo)):
            mass = [
                sum(np.exp(found.get(suffix.candidates[place], -np.inf)) for place in places)
                for places in asked.views[0].labels
            ]
            differ = np.abs(np.array(mass) / sum(mass) - reading.probabilities).max()
            worst[name] = max(worst[name], float(differ))
    return "; ".join(f"{name} {differ:.1e}" for name, differ in worst.items())


def counts(bench: ScoringBench) -> str:
    """Tokens that 400 statements compute over 2,000 tokens, and a second request."""
    bench.forget()
    plan = bench.plan(state_of(2, 1_500), statements(MANY))
    bench.score(plan)
    computed = bench.engine.snapshot.stats.computed_tokens
    again = bench.score(bench.plan(state_of(2, 1_500), statements(1)))
    num_state = len(plan.request.prompt.tokens)
    return (
        f"state {num_state} + suffixes {plan.request.num_tokens - num_state}, computed {computed}; "
        f"a second request finds {again.cached_tokens}"
    )


def suffix(bench: ScoringBench, rounds: int) -> str:
    """CPU time of a statement with a cached state, and of a bare decode of the same rows."""
    state = state_of(3, 750)
    bench.score(bench.plan(state, statements(1)))
    backend = bench.backend
    taken: list[list[float]] = [[], []]
    for number, text in enumerate(statements(rounds + 1)):
        plan = bench.plan(state, [f"{text} ({number})"])
        (each,) = plan.request.suffixes
        began = time.process_time()
        plan.readings(bench.score(plan).scores)
        used = time.process_time() - began
        slot = bench.engine.scheduler.cells.cached[-1]
        batch, start = backend.batch, slot.length
        batch.clear()
        batch.add(np.array(each.tokens, np.int32), start, slot.index)
        batch.outputs[batch.size - 1] = 1
        began = time.process_time()
        backend.decode()
        backend.logits(batch.size - 1)
        bare = time.process_time() - began
        backend.drop(slot.index, start)
        if number:
            taken[0].append(bare)
            taken[1].append(used)
    bare_ms, ms = (1e3 * statistics.median(each) for each in taken)
    return f"CPU ms {ms:.1f} / {bare_ms:.1f}: {quotients(*taken)}"


def layouts(bench: ScoringBench, rounds: int) -> str:
    """CPU time of statements with a cached state, unified / in streams."""
    taken: list[list[float]] = [[], []]
    for number in range(rounds):
        for place, unified in enumerate((False, True)):
            bench.forget()
            if bench.backend.unified != unified:
                bench.backend.arrange(unified=unified, slots=())
                bench.forget()
            layout = bench.engine.scheduler.layout
            with mock.patch.object(layout, "consider_streams"):
                state = state_of(300 + number, 600)
                bench.score(bench.plan(state, statements(1)))
                plan = bench.plan(state, statements(24))
                began = time.process_time()
                bench.score(plan)
                taken[place].append(time.process_time() - began)
    bench.forget()
    bench.backend.arrange(unified=False, slots=())
    return f"unified / streams: {quotients(taken[0], taken[1])}"


def stall(path: str, threads: int, max_stall: float) -> str:
    """Longest gaps of four streams beside 60 statements, in seconds of CPU time by threads."""

    def clock() -> float:
        return time.process_time() / threads

    bench = ScoringBench(
        path, threads, num_cells=24_576, num_slots=6, clock=clock, max_stall=max_stall
    )
    engine, last, gaps, steps = bench.engine, dict[str, float](), list[float](), list[float]()

    def step() -> bool:
        began = clock()
        deltas = engine.step()
        now = clock()
        steps.append(now - began)
        for delta in deltas:
            if not isinstance(delta, Scored):
                gaps.append(now - last.get(delta.id, now))
                last[delta.id] = now
        return any(isinstance(delta, Scored) for delta in deltas)

    for number in range(NUM_STREAMS):
        prompt = Prompt(tuple(range(100 + number, 140 + number)))
        engine.add(Request(id=str(number), prompt=prompt, params=STREAM))
    for _ in range(30):
        step()
    alone = statistics.median(gaps)
    gaps.clear()
    steps.clear()
    engine.add(bench.plan(state_of(7, 1_500), statements(60), again=True).request)
    while not step():
        pass
    bench.backend.close()
    return (
        f"a step alone {alone:.3f}, longest gap {max(gaps):.3f}, longest step {max(steps):.3f}, "
        f"--max-stall {max_stall:.3f}: {max(gaps) / max_stall:.2f} of it"
    )


def noise(bench: ScoringBench) -> str:
    """Largest and 95th percentile of differences of ln p of yes to no."""
    texts, state = statements(16), state_of(4, 200)

    def gaps(plan: Plan, streams: int = 0) -> np.ndarray:
        found = plan.readings(bench.score(plan, streams).scores)
        return np.array([np.log(each.probabilities[0] / each.probabilities[1]) for each in found])

    bench.forget()
    cold = np.concatenate([gaps(bench.plan(state, [text])) for text in texts])
    cached = np.concatenate([gaps(bench.plan(state, [text])) for text in texts])
    beside = gaps(bench.plan(state, texts))
    bench.forget()
    together = gaps(bench.plan(state, texts))
    streamed = gaps(bench.plan(state, texts), 2)
    bench.forget()
    streamed_cold = gaps(bench.plan(state, texts), 2)
    told: list[str] = []
    for name, other in (
        ("cached", cached), ("beside others", beside), ("cold beside others", together),
        ("beside streams", streamed), ("cold beside streams", streamed_cold),
    ):  # fmt: skip
        differ = np.abs(other - cold)
        told.append(f"{name} {differ.max():.4f} (95 %: {np.quantile(differ, 0.95):.4f})")
    return "; ".join(told)


def beside(
    model: str, server: str, threads: int, rounds: int, count: int, asked: Asked, orders: int
) -> str:
    """Answers a second of both, in turns."""
    texts = statements(count)
    if asked == "statement":
        bodies: list[Any] = [{"type": "predicate", "instructions": text} for text in texts]
        prompts = [f"Is this true? {text}\nAnswer yes or no." for text in texts]
    else:
        choices = [{"value": option} for option in REPAIRS]
        texts = [f"What is said of {WORDS[n % 10]} {n}?" for n in range(count)]
        bodies = [{"type": "choice", "instructions": text, "choices": choices} for text in texts]
        listed = "\n".join(
            f"{letter}. {text}" for letter, text in zip("ABCD", REPAIRS, strict=True)
        )
        prompts = [f"Question: {text}\n{listed}\nAnswer with one letter." for text in texts]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        shared = ["--model", model, "--host", HOST, "-t", str(threads), "-c", "16384", "-np", "4"]
        servers: list[VectorServer] = []
        for number, command in enumerate(
            (
                [sys.executable, "-m", "worker", "serve", "--decisions-orders", str(orders)],
                [server, "--no-webui"],
            )
        ):
            port = free_port()
            log = Path(name) / f"{number}.log"
            process = stack.enter_context(started([*command, *shared, "--port", str(port)], log))
            servers.append(VectorServer(f"http://{HOST}:{port}", process.pid))
        for each in servers:
            wait(each.url)

        def ours(state: str) -> None:
            body = {"model": "m", "input": state, "questions": bodies}
            answer = httpx.post(f"{servers[0].url}/v1/decisions", json=body, timeout=900)
            answer.raise_for_status()

        def theirs(clients: int) -> Callable[[str], None]:
            def ask_one(state: str, text: str) -> None:
                content = f"{state}\n\n{text}"
                body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1,
                        "temperature": 0, "logprobs": True, "top_logprobs": 10,
                        "cache_prompt": True}  # fmt: skip
                url = f"{servers[1].url}/v1/chat/completions"
                httpx.post(url, json=body, timeout=900).raise_for_status()

            def ask(state: str) -> None:
                with ThreadPoolExecutor(clients) as pool:
                    list(pool.map(partial(ask_one, state), prompts))

            return ask

        cases = ((0, ours), (1, theirs(1)), (1, theirs(4)))
        walls: list[list[float]] = [[], [], []]
        cpus: list[list[float]] = [[], [], []]
        for round_ in range(-1 if rounds > 1 else 0, rounds):
            for number in (0, 1, 2) if round_ % 2 else (2, 1, 0):
                place, ask = cases[number]
                state = state_of(103 + 3 * round_ + number, 750)
                used, began = cpu_s(servers[place].pid), time.monotonic()
                ask(state)
                wall, used = time.monotonic() - began, cpu_s(servers[place].pid) - used
                if round_ >= 0:  # before, all is new
                    walls[number].append(wall)
                    cpus[number].append(used)
        lines: list[str] = []
        for number, who in ((1, "one after another"), (2, "four at once")):
            clock, cpu = (quotients(each[0], each[number]) for each in (walls, cpus))
            lines.append(f"{who}: clock {clock}, CPU {cpu}")
        speed = count / statistics.median(walls[0])
        return f"{speed:.1f} answers/s; llama-server / worker: " + "; ".join(lines)


def gap(model: str, threads: int, stall_ms: int) -> str:
    """Longest gap of four streams, alone and beside 400 statements."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        port = free_port()
        command = [sys.executable, "-m", "worker", "serve", "--model", model, "--host", HOST,
                   "--port", str(port), "-t", str(threads), "-c", "24576", "-np", "6",
                   "--max-stall-ms", str(stall_ms), "--draft", "none"]  # fmt: skip
        stack.enter_context(started(command, Path(name) / "worker.log"))
        url = f"http://{HOST}:{port}"
        wait(url)
        ended = threading.Event()
        gaps: list[float] = []

        def write(number: int) -> None:
            body = {"prompt": f"{number}. {state_of(number, 30)}", "max_tokens": 1_500,
                    "stream": True, "ignore_eos": True}  # fmt: skip
            last = 0.0
            with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=900) as answer:
                for line in answer.iter_lines():
                    now = time.monotonic()
                    if line.startswith("data: {") and json.loads(line[6:]).get("choices"):
                        if last:
                            gaps.append(now - last)
                        last = now
                    if ended.is_set():
                        return

        with ThreadPoolExecutor(NUM_STREAMS) as pool:
            streams = [pool.submit(write, number) for number in range(NUM_STREAMS)]
            time.sleep(4)
            alone = max(gaps)
            gaps.clear()
            asked = [{"type": "predicate", "instructions": text} for text in statements(MANY)]
            body = {"model": "m", "input": state_of(7, 1_500), "questions": asked}
            began = time.monotonic()
            httpx.post(f"{url}/v1/decisions", json=body, timeout=900).raise_for_status()
            took, longest = time.monotonic() - began, max(gaps)
            ended.set()
            for stream in streams:
                stream.result()
        return (
            f"alone {alone:.3f} s; beside {MANY} questions {longest:.3f} s, which took {took:.0f} s"
        )


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("--llama-server")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stall-ms", type=int, default=400)
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--asked", choices=("statement", "choice"), default="statement")
    parser.add_argument("--orders", type=int, default=2)
    parser.add_argument("--cases", default="logprobs,counts,suffix,layouts,noise,stall,gap,answers")
    given = parser.parse_args(argv)
    names = given.cases.split(",")
    print(f"{Path(given.model).name}, {given.threads} threads", flush=True)
    if {"logprobs", "counts", "suffix", "layouts", "noise"} & {*names}:
        bench = ScoringBench(given.model, given.threads)
        cases: dict[str, Callable[[], str]] = {
            "logprobs": lambda: logprobs(bench),
            "counts": lambda: counts(bench),
            "suffix": lambda: suffix(bench, 4 * given.rounds),
            "layouts": lambda: layouts(bench, given.rounds),
            "noise": lambda: noise(bench),
        }
        for name in names:
            if name in cases:
                print(f"| {name} | {cases[name]()} |", flush=True)
        bench.backend.close()
    if "stall" in names:
        print(f"| stall | {stall(given.model, given.threads, given.stall_ms / 250)} |", flush=True)
    if "gap" in names:
        print(f"| gap | {gap(given.model, given.threads, given.stall_ms)} |", flush=True)
    if "answers" in names and given.llama_server:
        told = beside(
            given.model, given.llama_server, given.threads, given.rounds, given.questions,
            given.asked, given.orders,
        )  # fmt: skip
        print(f"| answers | {told} |", flush=True)


if __name__ == "__main__":
    main()
