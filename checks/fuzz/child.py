"""The child of a `Judge`: one path a line in, one verdict a line out.

It does with a file what `worker serve` does: the check and the memory plan, the load, the warm-up,
a text read and tokens written by the engine, the chat template. It believes that the machine has
MEMORY, so a file that passes the plan and then takes more is found out.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import msgspec

from checks.fuzz.verdict import Verdict
from worker import log
from worker.engine.embedding import EmbeddingLane, shorten, vectors_wanted
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.errors import RequestError, WorkerError
from worker.lifecycle.default_sampling import default_sampling
from worker.lifecycle.loading import open_backend
from worker.lifecycle.prepared import Prepared, load_weights, prepare
from worker.llama.backend import LlamaBackend
from worker.settings import Settings

MEMORY = 2 << 30
CPU_SECONDS = 20  # for one file, then SIGXCPU
SETTINGS = Settings(ctx_size=512, parallel=2, threads=1, threads_batch=1, batch_size=64,
                    ubatch_size=64)  # fmt: skip
TEXT = "The rain\n  in 1999, é 雨 🙂\t</s> <dna>ACGTA</dna> A\u0300\0\x7f…"
_MESSAGES = [{"role": "user", "content": "Does it rain?"}]
_PEAK = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def main() -> None:
    """Serve until the input ends."""
    log.configure("console", "error")
    # What native code prints goes elsewhere: the answers have this pipe for themselves.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        _bound_memory()
        for line in sys.stdin:
            _bound_time()
            verdict = judged(Path(line.rstrip("\n")))
            answers.write(msgspec.json.encode(verdict).decode() + "\n")
            answers.flush()


def _bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _bound_time() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + CPU_SECONDS, hard))


def judged(path: Path) -> Verdict:
    """What `serve` would do with the file."""
    before = _begin_peak()
    started = time.process_time()
    prepared: Prepared | None = None
    try:
        prepared = prepare(path, SETTINGS)
        found = Verdict("ran")
    except WorkerError as error:
        found = Verdict("refused", error.code, str(error))
    except Exception as error:  # noqa: BLE001  (whatever else is raised is a finding)
        found = Verdict("failed", type(error).__name__, _place(error))
    spent = {"seconds": time.process_time() - started, "nbytes": _peak() - before}
    found = msgspec.structs.replace(found, **spent)
    if prepared is None:
        return found
    try:
        return msgspec.structs.replace(found, template=_run(path, prepared))
    except WorkerError as error:
        stage = "failed" if isinstance(error, RequestError) else "not loaded"
        return msgspec.structs.replace(found, stage=stage, code=error.code, message=str(error))
    except Exception as error:  # noqa: BLE001  (as above)
        found = msgspec.structs.replace(found, stage="failed", code=type(error).__name__)
        return msgspec.structs.replace(found, message=_place(error))


def _run(path: Path, prepared: Prepared) -> float:
    """Load the file, write a few tokens in several ways, or make vectors; CPU seconds of the
    template."""
    backend = open_backend(load_weights(path, SETTINGS, prepared), SETTINGS, prepared)
    try:
        if prepared.config.only_embeds:
            _embed(backend)
        else:
            _write(backend, prepared)
        return _template(backend, prepared)
    finally:
        backend.close()


def _write(backend: LlamaBackend, prepared: Prepared) -> None:
    if backend.max_length < 6:
        return
    engine = Engine(backend, time.monotonic, max_running=2)
    vocab = backend.vocab
    read = [vocab.tokenize(TEXT, add_special=special, parse_special=special)
            for special in (True, False)]  # fmt: skip
    for token in {*range(min(400, vocab.size)), vocab.size - 1, *vocab.end_tokens}:
        vocab.name(token)
    sampling = default_sampling(prepared.config, Settings(seed=1))
    greedy = msgspec.structs.replace(sampling, temperature=0.0)
    first, second = (tuple(ids[: min(40, backend.max_length - 5)]) for ids in read)
    wanted = [
        Request(
            id="default",
            prompt=Prompt(first),
            params=GenerationParams(max_tokens=4, sampling=sampling),
        ),
        Request(
            id="greedy",
            prompt=Prompt(second),
            params=GenerationParams(max_tokens=4, sampling=greedy, logprobs=3),
        ),
    ]
    for request in wanted:
        if not request.prompt.tokens:
            continue  # 400: the vocabulary has nothing for this text
        engine.check(request)
        engine.add(request)
    _run_out(engine)


def _embed(backend: LlamaBackend) -> None:
    embedder, vocab = backend.embedder, backend.vocab
    assert embedder is not None
    texts = [
        shorten(tokens, embedder.max_length, vocab.ends_of_texts)
        for special in (True, False)
        if (tokens := vocab.tokenize(TEXT, add_special=special, parse_special=False))
    ]
    if not texts:
        return
    engine = Engine(backend, time.monotonic, lane=EmbeddingLane(embedder, time.monotonic))
    request = vectors_wanted(texts, "input")
    engine.check(request)
    engine.add(request)
    _run_out(engine)


def _run_out(engine: Engine) -> None:
    for _ in range(60):
        if engine.is_idle:
            return
        for delta in engine.step():
            if delta.error is not None:
                raise delta.error
    raise AssertionError("the engine does not come to an end")


def _template(backend: LlamaBackend, prepared: Prepared) -> float:
    """What the first chat does, whatever the template makes of it."""
    from worker.chat.format import ChatFormat
    from worker.chat.template import ChatTemplate

    tokenizer = prepared.config.tokenizer
    if tokenizer is None or not tokenizer.chat_template:
        return 0.0
    started = time.process_time()
    vocab = backend.vocab
    try:
        template = ChatTemplate(tokenizer.chat_template, bos="<s>", eos="</s>")
        ends = [vocab.name(token) for token in vocab.end_tokens]
        ChatFormat(template, vocab.controls, ends)
        prompt = template.render(_MESSAGES)
        vocab.tokenize(prompt[:2000], add_special=False, parse_special=True)
    except RequestError:
        pass
    return time.process_time() - started


def _place(error: BaseException) -> str:
    """Where it was raised, and what it says."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = "" if at is None else f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}"
    return f"{where}: {str(error)[:200]}"


def _begin_peak() -> int:
    """Forget the peak of the resident memory so far; bytes resident now."""
    _RESET.write_text("5")
    return _peak()


def _peak() -> int:
    for line in _PEAK.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main()
