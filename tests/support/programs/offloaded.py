"""A model loaded as the service loads it, in a process of its own: devices that were added cannot
be taken away, and native code may end the process.

`python -m tests.support.programs.offloaded JOB` prints a `Loaded` as JSON, or fails as the worker
does. `load` runs it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tests.support.programs.processes import WorkerProcess
from tests.support.programs.rpc_server import RpcServer
from worker.memory.offload import Placement
from worker.settings import Settings

if TYPE_CHECKING:  # a process that only asks for one loads no library
    from worker.llama.backend import LlamaBackend

TOKENS = 24
LAYERS = 7  # of the demo model: six blocks and the output
PROMPT = "Once upon a time there was a small bird that wanted to see the sea. One day"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to load, and what llama.cpp is told besides.

    keep_on_cpu  names of tensors (a regular expression) to leave on the CPU, of whatever layer
    plain        no encoding is put into another order on the CPU, as it is not on RPC servers
    """

    model: str
    settings: Settings
    keep_on_cpu: str | None = None
    plain: bool = False


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Where everything is, what was planned, and what the model says: tokens continued greedily,
    and the logits behind the prompt. log: what the process wrote to stderr."""

    layers: tuple[str, ...]
    kv: tuple[tuple[int, str], ...]
    planned: tuple[Placement, ...]
    allocated: tuple[Placement, ...]
    estimated: tuple[str, ...]
    tokens: tuple[int, ...]
    logits: tuple[float, ...]
    log: str = ""


class FailedLoadError(Exception):
    """code: the process's exit code; line: the last that it wrote."""

    def __init__(self, code: int, line: str) -> None:
        super().__init__(f"exit code {code}: {line}")
        self.code = code
        self.line = line


def load(
    model: Path, settings: Settings, *, keep_on_cpu: str | None = None, plain: bool = False
) -> Loaded:
    """Load and continue in another process. Raises FailedLoadError."""
    job = Job(model=str(model), settings=settings, keep_on_cpu=keep_on_cpu, plain=plain)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.programs.offloaded",
            msgspec.json.encode(job).decode(),
        ],
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, "GGML_NO_BACKTRACE": "1"},
    )
    log = done.stderr.decode(errors="replace")
    if done.returncode:
        raise FailedLoadError(done.returncode, log.strip().rpartition("\n")[2])
    loaded = msgspec.json.decode(done.stdout.splitlines()[-1], type=Loaded)
    return msgspec.structs.replace(loaded, log=log)


class _Override(ctypes.Structure):
    """llama_model_tensor_buft_override."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def _tell(job: Job) -> list[object]:
    """Have the job's wishes in the parameters of the load; the result must live as long."""
    from worker.llama import library
    from worker.llama.library import native

    cpu = library.ggml().ggml_backend_dev_buffer_type(library.device_handles()["CPU"])
    overrides = (_Override * 2)()
    if job.keep_on_cpu is not None:
        overrides[0] = _Override(job.keep_on_cpu.encode(), cpu)
    defaults = native.llama_model_default_params

    def told() -> native.llama_model_params:
        params = defaults()
        params.use_extra_bufts = not job.plain
        if job.keep_on_cpu is not None:
            params.tensor_buft_overrides = ctypes.addressof(overrides)  # pyright: ignore
        return params

    native.llama_model_default_params = told
    return [overrides]


def _for_vectors(backend: LlamaBackend) -> Iterator[Placement]:
    """Of the context for vectors beside one for text."""
    from worker.llama import library

    for context in backend.embedder.contexts if backend.embedder is not None else ():
        for name, nbytes in (*context.residency.kv_buffers, *context.residency.compute_buffers):
            yield Placement(library.device_of(name), "embedding", nbytes)


def run(job: Job) -> Loaded:
    """Load, look, continue."""
    from worker.engine.engine import Engine
    from worker.engine.request import GenerationParams, Prompt, Request
    from worker.engine.sampling import SamplingParams
    from worker.lifecycle.asked_plan import ask_when_idle
    from worker.lifecycle.loading import load_backend, open_draft
    from worker.lifecycle.prepared import prepare
    from worker.llama.residency import placements

    path = Path(job.model)
    prepared = prepare(path, job.settings)
    planned = asyncio.run(ask_when_idle(prepared, job.settings, lambda: True))
    kept = _tell(job)
    with load_backend(path, job.settings, prepared) as backend:
        draft = open_draft(job.settings, prepared, backend)
        prompt = tuple(backend.vocab.tokenize(PROMPT, add_special=True, parse_special=False))
        engine = Engine(backend, lambda: 0.0)
        engine.add(
            Request(
                id="a",
                prompt=Prompt(prompt),
                params=GenerationParams(
                    max_tokens=TOKENS, sampling=SamplingParams(temperature=0, ignore_eos=True)
                ),
            )
        )
        tokens: list[int] = []
        while not engine.is_idle:
            tokens += [delta.token for delta in engine.step() if delta.token is not None]
        backend.context.clear()
        backend.batch.clear()
        backend.batch.add(np.array(prompt), 0, 0)
        backend.batch.outputs[len(prompt) - 1] = 1
        backend.decode()
        result = Loaded(
            layers=backend.weights.residency.layers,
            kv=backend.context.residency.layers,
            planned=planned.devices,
            estimated=planned.estimated,
            allocated=(
                *placements(
                    backend.weights.residency,
                    backend.context.residency,
                    draft.buffers if draft is not None else (),
                ),
                *_for_vectors(backend),
            ),
            tokens=tuple(tokens),
            logits=tuple(map(float, backend.logits(len(prompt) - 1))),
        )
        if draft is not None:
            draft.close()
    del kept
    return result


def main() -> int:
    """The job in argv[1]."""
    from worker import log
    from worker.errors import WorkerError

    log.configure("console")
    try:
        result = run(msgspec.json.decode(sys.argv[1], type=Job))
    except WorkerError as error:
        sys.stderr.write(f"error: {error.code}: {error}\n")
        return error.exit_code
    sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
    sys.stdout.flush()
    return 0


def settings(*servers: RpcServer, layers: int = 0, **given: Any) -> Settings:
    """Small, and the same number of threads everywhere."""
    common: dict[str, Any] = {
        "ctx_size": 1024,
        "parallel": 1,
        "threads": 1,
        "threads_batch": 1,
        "n_gpu_layers": layers,
    }
    return Settings(rpc=tuple(server.address for server in servers), **{**common, **given})


def words(*servers: RpcServer, layers: int | str) -> list[str]:
    """The same on the command line."""
    addresses = ",".join(server.address for server in servers)
    return ["--rpc", addresses, "-ngl", str(layers), "-c", "1024", "-t", "1", "-tb", "1"]


def last_line(worker: WorkerProcess) -> str:
    """What a worker that has ended said last."""
    return [line for line in worker.lines if line][-1]


if __name__ == "__main__":
    from worker.lifecycle.leave import leave

    leave(main())
