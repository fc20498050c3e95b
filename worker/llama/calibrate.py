"""Which attention takes less time on this CPU: measured once for a shape, and kept.

**Fused**, llama.cpp's flash attention, reads keys and values cell by cell and writes no scores
down. **Plain** multiplies queries, scores and values as matrices. On a CPU neither is always
faster: it depends on the CPU, on how llama.cpp is built for it, and on the heads. So it is timed on
a model of one layer with such heads and random weights: in CPU time of one thread, which a busy
machine hardly changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from worker import log, machine
from worker.errors import WorkerError
from worker.files import atomic_write, cache_folder
from worker.llama import soundness
from worker.llama.library import build, mute_log

if TYPE_CHECKING:  # the engine's part of it is imported where attention is measured
    from worker.llama.context import Context

AttentionKind = Literal["fused", "plain"]

# Tokens before the rows of a step, and rows of it, each of another sequence.
_DEPTHS, _ROWS = (1024, 512, 128), (1, 8)
# What is compared: to read so many tokens, and at each depth so many steps by their rows.
_READ, _STEPS = 1024, {1: 64, 8: 16}
_PIECE, _PLAIN_ROWS = 128, 64
# Of so many measurements of a step the shortest counts.
_TAKES = 4
# Plain attention must take at most this share of the time: beside busy neighbours the same
# calibration differs by a tenth.
_GAIN = 0.85
# A calibration that takes longer is given up: a start does not wait for a busy machine.
_PATIENCE_S = 4.0
_SLOT_CELLS, _WIDTH, _VOCABULARY = 1280, 64, 64


class AttentionShape(msgspec.Struct, frozen=True):
    """What the time of attention depends on, beside the CPU and the library.

    heads, kv_heads            of a layer
    key_length, value_length   of a head
    cells                      types of keys and values
    """

    heads: int
    kv_heads: int
    key_length: int
    value_length: int
    cells: tuple[str, str]

    def __str__(self) -> str:
        keys, values = self.cells
        return (
            f"{self.heads}/{self.kv_heads} heads of {self.key_length}/{self.value_length}, "
            f"{keys}/{values}"
        )


class StepTimes(msgspec.Struct, frozen=True):
    """CPU seconds of a step of one layer, with each attention.

    rows    of as many sequences; or of a piece of a prompt
    depth   tokens before them
    """

    rows: int
    depth: int
    fused_s: float
    plain_s: float


class Calibration(msgspec.Struct, frozen=True):
    """What was measured, and what follows from it.

    measured  when, in UTC
    seconds   how long it took
    ratio     plain attention's time to fused attention's, over all that is compared
    """

    shape: AttentionShape
    cpu: str
    llama_cpp: str
    measured: str
    seconds: float
    steps: tuple[StepTimes, ...]
    ratio: float

    @property
    def attention(self) -> AttentionKind:
        return "plain" if self.ratio <= _GAIN else "fused"


def calibration(shape: AttentionShape) -> Calibration | None:
    """What is kept, else what is measured now and kept; None where that fails or takes too long:
    then attention is fused."""
    path = _path(shape)
    with contextlib.suppress(OSError, WorkerError, msgspec.DecodeError):
        if path is not None and path.is_file():
            return msgspec.json.decode(path.read_bytes(), type=Calibration)
    return calibrate(shape)


def calibrate(shape: AttentionShape) -> Calibration | None:
    """Measure now, whatever is kept, and keep it; None where that fails or takes too long."""
    # In a thread that ends: libgomp keeps a team of threads for each thread that decoded.
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="calibrate") as pool:
            found = pool.submit(_measure, shape).result()
    except (WorkerError, OSError, MemoryError, TimeoutError) as error:
        log.get("calibrate").info("attention is fused: it was not measured", reason=str(error))
        return None
    path = _path(shape)
    with contextlib.suppress(OSError):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as partial:
                partial.write_bytes(msgspec.json.encode(found))
    return found


def known_calibrations() -> list[Calibration]:
    """What is known of this CPU with this library, by shape."""
    found: list[Calibration] = []
    with contextlib.suppress(OSError, WorkerError):
        for path in sorted(cache_folder("attention").glob(f"{_machine()}-*.json")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                found.append(msgspec.json.decode(path.read_bytes(), type=Calibration))
    return found


def _machine() -> str:
    """A hash of the CPU, of the library's files and of how this module measures."""
    return f"{soundness.key(build().variant)}-{Path(__file__).stat().st_size}"


def _path(shape: AttentionShape) -> Path | None:
    with contextlib.suppress(WorkerError):  # no home folder
        name = hashlib.sha256(msgspec.json.encode(shape)).hexdigest()[:16]
        return cache_folder("attention") / f"{_machine()}-{name}.json"
    return None


def _measure(shape: AttentionShape) -> Calibration:
    begun = time.perf_counter()
    with _contexts(shape) as contexts:
        steps = [*_time_reading(contexts, begun), *_time_writing(contexts, begun)]
    seconds = [
        sum(_share(step) * taken for step, taken in zip(steps, column, strict=True))
        for column in ([step.fused_s for step in steps], [step.plain_s for step in steps])
    ]
    return Calibration(
        shape=shape,
        cpu=machine.cpu()[0],
        llama_cpp=build().bindings,
        measured=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        seconds=round(time.perf_counter() - begun, 2),
        steps=tuple(steps),
        ratio=round(seconds[1] / max(seconds[0], 1e-9), 3),
    )


def _share(step: StepTimes) -> int:
    """How often such a step counts."""
    return _STEPS.get(step.rows, 1)


@contextlib.contextmanager
def _contexts(shape: AttentionShape) -> Generator[list[_Timed]]:
    from worker.llama.context import Context, ContextOptions
    from worker.llama.weights import LoadOptions, Weights

    with contextlib.ExitStack() as stack:
        stack.enter_context(mute_log())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gguf-worker-calibrate-"))
        path = Path(folder) / "layer.gguf"
        _write(path, shape)
        weights = stack.enter_context(Weights(path, LoadOptions(n_gpu_layers=0, devices=())))
        yield [
            _Timed(
                stack.enter_context(
                    Context(
                        weights,
                        ContextOptions(
                            num_cells=max(_ROWS) * _SLOT_CELLS,
                            num_slots=max(_ROWS),
                            cache_type_k=shape.cells[0],
                            cache_type_v=shape.cells[1],
                            flash_attn="on",
                            plain_rows=plain_rows,
                        ),
                    )
                )
            )
            for plain_rows in (0, _PLAIN_ROWS)
        ]


class _Timed:
    def __init__(self, context: Context) -> None:
        self.context = context

    def read(self, depth: int) -> float:
        """Seconds of a piece of a prompt, in slot 0 behind `depth` tokens."""
        batch = self.context.batch
        batch.clear()
        batch.add(np.arange(_PIECE, dtype=np.int32) % _VOCABULARY, depth, 0)
        return self._decode()

    def write(self, rows: int, depth: int) -> float:
        """Seconds of a step of so many slots that hold `depth` tokens, and do so afterwards."""
        batch = self.context.batch
        batch.clear()
        for slot in range(rows):
            batch.add_one(slot % _VOCABULARY, depth, slot)
        seconds = self._decode()
        for slot in range(rows):
            self.context.drop(slot, depth)
        return seconds

    def fill(self) -> None:
        """Give all slots what slot 0 holds."""
        blob = self.context.state(0, lambda size: np.empty(size, np.uint8))
        for slot in range(1, max(_ROWS)):
            self.context.set_state(slot, blob, 0)

    def _decode(self) -> float:
        started = time.thread_time()
        self.context.decode()
        return time.thread_time() - started


def _time_reading(contexts: list[_Timed], begun: float) -> list[StepTimes]:
    """All slots hold _READ tokens afterwards."""
    steps: list[StepTimes] = []
    for timed in contexts:
        timed.read(0)  # makes graphs and touches memory
        timed.context.drop(0)
    for depth in range(0, _READ, _PIECE):
        steps.append(StepTimes(_PIECE, depth, *(timed.read(depth) for timed in contexts)))
        _look_at(begun)
    for timed in contexts:
        timed.fill()
    return steps


def _time_writing(contexts: list[_Timed], begun: float) -> list[StepTimes]:
    steps: list[StepTimes] = []
    for depth in _DEPTHS:
        for timed in contexts:
            for slot in range(max(_ROWS)):
                timed.context.drop(slot, depth)
        for rows in _ROWS:
            turns = [[timed.write(rows, depth) for timed in contexts] for _ in range(1 + _TAKES)]
            fused_s, plain_s = (min(times) for times in zip(*turns[1:], strict=True))
            steps.append(StepTimes(rows, depth, fused_s, plain_s))
            _look_at(begun)
    return steps


def _look_at(begun: float) -> None:
    if time.perf_counter() - begun > _PATIENCE_S:
        raise TimeoutError(f"it takes more than {_PATIENCE_S:.0f} seconds")


def _write(path: Path, shape: AttentionShape) -> None:
    """A Llama of one layer with such heads, narrow in all else."""
    import gguf

    random = np.random.default_rng(1)
    queries, keys = shape.heads * shape.key_length, shape.kv_heads * shape.key_length
    results, values = shape.heads * shape.value_length, shape.kv_heads * shape.value_length
    matrices = {
        "token_embd": (_VOCABULARY, _WIDTH),
        "output": (_VOCABULARY, _WIDTH),
        "blk.0.attn_q": (queries, _WIDTH),
        "blk.0.attn_k": (keys, _WIDTH),
        "blk.0.attn_v": (values, _WIDTH),
        "blk.0.attn_output": (_WIDTH, results),
        "blk.0.ffn_gate": (_WIDTH, _WIDTH),
        "blk.0.ffn_up": (_WIDTH, _WIDTH),
        "blk.0.ffn_down": (_WIDTH, _WIDTH),
    }
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(_SLOT_CELLS)
    writer.add_embedding_length(_WIDTH)
    writer.add_feed_forward_length(_WIDTH)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.key_length)
    writer.add_value_length(shape.value_length)
    writer.add_rope_dimension_count(shape.key_length)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(_VOCABULARY)
    writer.add_tokenizer_model("no_vocab")
    for name, size in matrices.items():
        data = random.normal(0, _WIDTH**-0.5, size).astype(np.float32)
        writer.add_tensor(f"{name}.weight", data)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(_WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
