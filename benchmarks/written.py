"""Have a chat model write texts, from which a drafter learns what it says.

    python -m benchmarks.written MODEL.gguf TEXTS.jsonl --tokens 60000

Nobody asks: behind the words that begin a user's turn it writes a question, drawn at a temperature
of 0.8, and answers it. A line is a list of token ids. The turns are ChatML's.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from rich.progress import Progress

from worker import log, machine
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams

_BEGIN, _BETWEEN = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
_STREAMS, _QUESTION, _ANSWER = 16, 48, 256


def written(engine: Engine, prompts: Sequence[Sequence[int]], most: int) -> list[list[int]]:
    """The prompts, each with what the model writes behind it, all at once."""
    found = {str(number): list(prompt) for number, prompt in enumerate(prompts)}
    sampling = SamplingParams(temperature=0.8, top_p=0.95)
    params = GenerationParams(max_tokens=most, sampling=sampling)
    for name, prompt in found.items():
        engine.add(Request(id=name, prompt=Prompt(tuple(prompt)), params=params))
    while not engine.is_idle:
        for delta in engine.step():
            if delta.token is not None and delta.token not in engine.backend.end_tokens:
                found[delta.id].append(delta.token)
    return list(found.values())


def main() -> None:
    """Write a file."""
    parser = argparse.ArgumentParser(description="Texts that a chat model writes.")
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokens", type=int, default=60_000)
    given = parser.parse_args()
    log.configure("console", "error")

    from worker.llama.backend import LlamaBackend
    from worker.llama.context import ContextOptions
    from worker.llama.weights import LoadOptions

    cpus = machine.usable_cpus()
    options = ContextOptions(
        num_cells=_STREAMS * 512, num_slots=_STREAMS, threads=cpus, threads_batch=cpus
    )
    with (
        LlamaBackend.open(given.model, LoadOptions(), options) as backend,
        Progress() as progress,
        given.out.open("w") as file,
    ):
        task = progress.add_task("tokens", total=given.tokens)
        engine = Engine(backend, time.monotonic)
        begin, between = (
            backend.vocab.tokenize(text, add_special=False, parse_special=True)
            for text in (_BEGIN, _BETWEEN)
        )
        while not progress.finished:
            questions = written(engine, [begin] * _STREAMS, _QUESTION)
            asked = [[*question, *between] for question in questions]
            for text in written(engine, asked, _ANSWER):
                file.write(f"{json.dumps(text)}\n")
                progress.advance(task, len(text))


if __name__ == "__main__":
    main()
