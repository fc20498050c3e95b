"""Compares the engine with the numpy reference and writes down what came out.

`python -m tests.proof` runs the demo model as it ships and re-encoded, and writes
`.proof/<UTC time>/` with checkpoints.json, tolerances.json, seeds.json, greedy.json and
environment.json. It exits with 1 when an error is out of its tolerance, a greedy run does not
repeat, or seeds do not do what seeds do.

The checkpoints, with llama.cpp's names for the tensors: the embedding (`embd`), the residual
stream after the first block (`l_out-0`), the final logits. The error of a checkpoint is
|got - want| / |want| with Euclidean norms over all its rows, and the largest |got - want|.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np

from tests.support.models.reference import Checkpoints, Floats, ReferenceLlama
from worker import log
from worker.demo import MODEL_PATH
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.engine.sequence import Delta
from worker.llama import library
from worker.llama.backend import LlamaBackend
from worker.llama.context import Context, ContextOptions
from worker.llama.graph import Callback
from worker.llama.weights import LoadOptions, Weights

OBSERVED = ("embd", "l_out-0")
MODES = ("at once", "in chunks", "token by token", "one of several")
PROMPT_LENGTH = 40
CHUNK = 13
NUM_SLOTS = 4
NUM_CELLS = 512
SEEDS = (1, 2)
PACKAGES = ("gguf-worker", "llama-cpp-python", "numpy", "gguf", "msgspec")
THREADS = min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


@dataclass(frozen=True)
class Tolerance:
    """The largest relative error allowed at each checkpoint."""

    embedding: float
    block: float
    logits: float


#: Weights' type -> tolerance. `exact` is an F32 file with an F32 cache and without the fused
#: attention kernel, where only the order of additions differs. Elsewhere the fused kernel rounds
#: keys and values to F16, and products round activations to F16, Q8_0 or Q8_K. Behind each: the
#: worst measured at block and logits over ten random models and all modes.
TOLERANCES: Mapping[str, Tolerance] = {
    "exact": Tolerance(0, 1e-5, 1e-5),  # 6.2e-7, 8.3e-7
    "F32": Tolerance(0, 3e-3, 4e-3),  # 1.1e-3, 1.3e-3
    "F16": Tolerance(0, 3e-3, 5e-3),  # 1.2e-3, 1.5e-3
    "Q8_0": Tolerance(0, 4e-2, 6e-2),  # 1.6e-2, 2.4e-2
    "Q4_K_M": Tolerance(0, 6e-2, 9e-2),  # 2.5e-2, 3.3e-2
}


@dataclass(frozen=True)
class Row:
    """What the engine computed for one token. logits is None where nobody asked for them."""

    token: int
    embedding: Floats
    block: Floats
    logits: Floats | None


class ObservedContext(Context):
    """Keeps copies of the tensors OBSERVED that it computes, float32 [rows, width], by name."""

    def __init__(
        self,
        seen: dict[str, list[Floats]],
        weights: Weights,
        options: ContextOptions,
        observer: Callback | None = None,
    ) -> None:
        self._callback = _observer(seen)  # which ctypes keeps no reference to
        super().__init__(weights, options, observer)

    def _params(self) -> Any:
        params = super()._params()
        params.cb_eval = self._callback
        return params


def _observer(seen: dict[str, list[Floats]]) -> Any:
    lib = library.ggml()
    for name, result, arguments in (
        ("ggml_get_name", ctypes.c_char_p, [ctypes.c_void_p]),
        ("ggml_nelements", ctypes.c_int64, [ctypes.c_void_p]),
        ("ggml_nrows", ctypes.c_int64, [ctypes.c_void_p]),
        ("ggml_backend_tensor_get", None, [ctypes.c_void_p] * 2 + [ctypes.c_size_t] * 2),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments

    def evaluate(tensor: int, ask: bool, _user: object) -> bool:
        name = lib.ggml_get_name(tensor).decode(errors="replace")
        if ask or name not in OBSERVED:
            return name in OBSERVED or not ask  # whether it is wanted; then True goes on computing
        values = np.empty(lib.ggml_nelements(tensor), np.float32)
        lib.ggml_backend_tensor_get(tensor, values.ctypes.data, 0, values.nbytes)
        seen.setdefault(name, []).append(values.reshape(lib.ggml_nrows(tensor), -1))
        return True

    return library.native.ggml_backend_sched_eval_callback(evaluate)


class RecordingBackend(LlamaBackend):
    """Keeps every computed row: rows[slot][position]."""

    def __init__(self, path: Path, *, exact: bool = False, batch_size: int = 512) -> None:
        cache = "f32" if exact else "f16"
        self.rows: dict[int, dict[int, Row]] = {}
        self._seen: dict[str, list[Floats]] = {}
        options = ContextOptions(
            num_cells=NUM_CELLS,
            num_slots=NUM_SLOTS,
            batch_size=batch_size,
            threads=THREADS,
            threads_batch=THREADS,
            cache_type_k=cache,
            cache_type_v=cache,
            flash_attn="off" if exact else "auto",
        )
        observed = partial(ObservedContext, self._seen)
        with mock.patch("worker.llama.backend.Context", observed):
            super().__init__(Weights(path, LoadOptions(n_gpu_layers=0, devices=())), options)

    def decode(self) -> None:
        """Compute the batch and keep its rows."""
        self._seen.clear()
        super().decode()
        batch = self.batch
        embedding, block = (np.concatenate(self._seen[name]) for name in OBSERVED)
        for row in range(batch.size):
            kept = self.rows.setdefault(int(batch.slots[row]), {})
            logits = self.logits(row).copy() if batch.outputs[row] else None
            token = int(batch.tokens[row])
            kept[int(batch.positions[row])] = Row(token, embedding[row], block[row], logits)

    def drop(self, slot: int, start: int = 0) -> bool:
        """Forget the rows too: those that nobody reads are dropped right after their step."""
        kept = self.rows.get(slot, {})
        self.rows[slot] = {place: row for place, row in kept.items() if place < start}
        return super().drop(slot, start)


def prompt_tokens(vocab_size: int, length: int = PROMPT_LENGTH, seed: int = 1) -> list[int]:
    """Random ids from the ordinary part of a vocabulary."""
    return np.random.default_rng(seed).integers(3, vocab_size, length).tolist()


def requests(mode: str, vocab_size: int) -> list[Request]:
    """What is submitted at the same moment in a mode; rows with and without logits among them."""
    prompt = prompt_tokens(vocab_size)
    scored = Request(
        id="scored",
        prompt=Prompt(tuple(prompt)),
        params=GenerationParams(max_tokens=0, prompt_logprobs=0),
    )
    if mode in ("at once", "in chunks"):
        return [scored]
    single = _stream("single", prompt[:1], PROMPT_LENGTH, seed=2)
    if mode == "token by token":
        return [single]
    branch = prompt[: PROMPT_LENGTH // 2] + prompt_tokens(vocab_size, 8, seed=3)
    other = prompt_tokens(vocab_size, PROMPT_LENGTH // 3, seed=4)
    return [
        scored,
        single,
        _stream("branch", branch, 8, seed=5),
        _stream("other", other, 8, seed=6),
    ]


def _stream(name: str, prompt: Sequence[int], max_tokens: int, seed: int) -> Request:
    sampling = SamplingParams(seed=seed, ignore_eos=True)
    return Request(
        id=name,
        prompt=Prompt(tuple(prompt)),
        params=GenerationParams(max_tokens=max_tokens, sampling=sampling),
    )


def deltas(backend: LlamaBackend, asked: Iterable[Request]) -> Iterator[Delta]:
    """Submit all to a fresh engine and step until it is idle. Raises what a request ends in."""
    engine = Engine(backend, clock=lambda: 0.0)
    for request in asked:
        engine.check(request)
        engine.add(request)
    while not engine.is_idle:
        for delta in engine.step():
            if delta.error is not None:
                raise delta.error
            yield delta


def run(backend: LlamaBackend, asked: Sequence[Request]) -> dict[str, list[int]]:
    """Run all together; id -> prompt and sampled tokens."""
    known = {request.id: list(request.prompt.tokens) for request in asked}
    for delta in deltas(backend, asked):
        if delta.token is not None:
            known[delta.id].append(delta.token)
    return known


@dataclass(frozen=True)
class Agreement:
    """How near the engine came to the reference at one checkpoint."""

    mode: str
    checkpoint: str
    rows: int
    max_abs: float
    relative: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the error is a number and within its tolerance."""
        return self.rows > 0 and self.relative <= self.tolerance


def measure(
    path: Path,
    kind: str,
    reference: ReferenceLlama,
    modes: Iterable[str] = MODES,
) -> list[Agreement]:
    """Run the modes on a file and compare all that was computed; `kind` is a key of TOLERANCES."""
    found: list[Agreement] = []
    for mode in modes:
        batch_size = CHUNK if mode == "in chunks" else 512
        backend = RecordingBackend(path, exact=kind == "exact", batch_size=batch_size)
        with backend:
            known = run(backend, requests(mode, backend.vocab_size))
            found += compare(mode, TOLERANCES[kind], backend.rows, known, reference)
    return found


def compare(
    mode: str,
    tolerance: Tolerance,
    rows: Mapping[int, Mapping[int, Row]],
    known: Mapping[str, Sequence[int]],
    reference: ReferenceLlama,
) -> list[Agreement]:
    """The recorded rows of all slots against the reference's rows of the sequences they hold."""
    wanted = {name: reference.forward(tokens) for name, tokens in known.items()}
    got: dict[str, list[Floats]] = {"embedding": [], "block": [], "logits": []}
    want: dict[str, list[Floats]] = {"embedding": [], "block": [], "logits": []}
    for held in filter(None, rows.values()):
        right = _checkpoints_of(held, known, wanted)
        for position, row in held.items():
            got["embedding"].append(row.embedding)
            want["embedding"].append(right.embedding[position])
            got["block"].append(row.block)
            want["block"].append(right.blocks[0][position])
            if row.logits is not None:
                got["logits"].append(row.logits)
                want["logits"].append(right.logits[position])
    return [
        _agreement(mode, name, np.stack(got[name]), np.stack(want[name]), getattr(tolerance, name))
        for name in got
    ]


def _checkpoints_of(
    held: Mapping[int, Row],
    known: Mapping[str, Sequence[int]],
    wanted: Mapping[str, Checkpoints],
) -> Checkpoints:
    """The reference's answer for the sequence whose tokens a slot holds."""
    for name, tokens in known.items():
        if all(p < len(tokens) and tokens[p] == row.token for p, row in held.items()):
            return wanted[name]
    raise AssertionError(f"a slot holds tokens of no sequence, at positions {sorted(held)}")


def _agreement(mode: str, name: str, got: Floats, want: Floats, tolerance: float) -> Agreement:
    error = got.astype(np.float64) - want
    return Agreement(
        mode=mode,
        checkpoint=name,
        rows=len(want),
        max_abs=float(np.abs(error).max()),
        relative=float(np.linalg.norm(error) / np.linalg.norm(want)),
        tolerance=tolerance,
    )


def generate(path: Path, sampling: SamplingParams, num_tokens: int = 32) -> list[int]:
    """The tokens that a fresh backend samples after a fixed prompt."""
    with RecordingBackend(path) as backend:
        prompt = tuple(prompt_tokens(backend.vocab_size))
        asked = Request(
            id="one",
            prompt=Prompt(prompt),
            params=GenerationParams(max_tokens=num_tokens, sampling=sampling),
        )
        return run(backend, [asked])["one"][len(prompt) :]


def check_sampling(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(greedy runs, sampled runs), each with whether they do what they should."""
    greedy = [generate(path, SamplingParams(temperature=0, ignore_eos=True)) for _ in range(2)]
    runs = {seed: [_sampled(path, seed), _sampled(path, seed)] for seed in SEEDS}
    repeats = all(first == second for first, second in runs.values())
    differs = len({tuple(first) for first, _ in runs.values()}) == len(runs)
    return (
        {"runs": greedy, "repeats": greedy[0] == greedy[1]},
        {"runs": runs, "repeats": repeats, "differs": differs},
    )


def _sampled(path: Path, seed: int) -> list[int]:
    return generate(path, SamplingParams(temperature=1, seed=seed, ignore_eos=True))


def reencode(source: Path, target: Path, file_type: int) -> Path:
    """Write the model in another llama_ftype."""
    library.start()
    params = library.native.llama_model_quantize_default_params()
    params.ftype = file_type
    # ctypes passes a struct by reference where a pointer to it is declared; the stub wants byref.
    code = library.native.llama_model_quantize(
        str(source).encode(),
        str(target).encode(),
        params,  # pyright: ignore[reportArgumentType]
    )
    if code:
        raise AssertionError(f"llama.cpp could not write llama_ftype {file_type}: {code}")
    return target


def environment(path: Path) -> dict[str, Any]:
    """What the figures were taken with; nothing that names the machine."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "threads": THREADS,
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "llama.cpp": msgspec.to_builtins(library.build()),
        "devices": [device.name for device in library.devices()],
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain")),
        "model": {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git(*arguments: str) -> str | None:
    folder = Path(__file__).parent
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def main(path: Path = MODEL_PATH, folder: Path = Path(".proof")) -> int:
    """Run everything on one model and write the files; the exit code."""
    found: dict[str, list[Agreement]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        files = {
            "exact": reencode(path, Path(scratch, "f32.gguf"), 0),
            "F16": path,
            "Q8_0": reencode(path, Path(scratch, "q8_0.gguf"), 7),
            "Q4_K_M": reencode(path, Path(scratch, "q4_k_m.gguf"), 15),
        }
        for kind, file in files.items():
            found[kind] = measure(file, kind, ReferenceLlama(file))
    greedy, seeds = check_sampling(path)
    run_folder = folder / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    run_folder.mkdir(parents=True)
    contents = {
        "checkpoints": {
            kind: [{**asdict(a), "holds": a.holds} for a in list_] for kind, list_ in found.items()
        },
        "tolerances": {kind: asdict(TOLERANCES[kind]) for kind in found},
        "seeds": seeds,
        "greedy": greedy,
        "environment": environment(path),
    }
    for name, content in contents.items():
        (run_folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    every = [agreement for list_ in found.values() for agreement in list_]
    missed = [agreement for agreement in every if not agreement.holds]
    sampling_holds = greedy["repeats"] and seeds["repeats"] and seeds["differs"]
    print(
        f"{len(every) - len(missed)} of {len(every)} checkpoints within tolerance, "
        f"sampling {'repeats' if sampling_holds else 'DOES NOT REPEAT'}: {run_folder}"
    )
    return 1 if missed or not sampling_holds else 0


if __name__ == "__main__":
    log.configure("console")
    sys.exit(main())
