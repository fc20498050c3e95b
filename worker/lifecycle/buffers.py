"""What llama.cpp would allocate for a context, by its own word: no weight is read."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from worker import log
from worker.llama import library
from worker.llama.context import (
    Context,
    ContextOptions,
    assistant_options,
    lender_options,
)
from worker.llama.weights import LoadOptions, Weights
from worker.memory.contexts import AskBuffers, AskPlaces, ContextBytes, Wanted
from worker.memory.embedding import EmbeddingShape
from worker.model.config import ModelConfig
from worker.model.drafts import (
    borrows,
    reads_cells,
    reads_states,
    states_read,
    why_no_heads,
)
from worker.settings import Settings

_Told = TypeVar("_Told")
_PATIENCE_S = 20.0
_MIB = 1 << 20
_OVERLAP = re.compile(r"sched copies = (\d+)")
_CPU_ONLY = LoadOptions(n_gpu_layers=0, devices=())
_CELLS = re.compile(r"size =\s+([\d.]+) MiB \(.*\), K \(")
_STATES = re.compile(r"size =\s+([\d.]+) MiB \(.*\), R \(")


def context_options(settings: Settings, num_cells: int) -> ContextOptions:
    """Of a context for text, as far as the settings say."""
    return ContextOptions(
        num_cells=num_cells,
        num_slots=settings.slots,
        batch_size=settings.batch_size,
        ubatch_size=settings.ubatch_size,
        cache_type_k=settings.cache_type_k,
        cache_type_v=settings.cache_type_v,
        flash_attn=settings.flash_attn,
        yarn=settings.yarn,
        purpose=text_purpose(heads=settings.uses_heads),
    )


def text_purpose(
    draft: ModelConfig | None = None, *, heads: bool
) -> Literal["text", "text beside heads", "text beside an assistant"]:
    """Of the context for text, beside the file's own heads or what drafts."""
    if reads_cells(draft):
        return "text beside an assistant"
    return "text beside heads" if heads else "text"


def vectors_options(options: ContextOptions, shape: EmbeddingShape) -> ContextOptions:
    """Of a context for vectors, which computes a step at once."""
    return msgspec.structs.replace(
        options,
        num_cells=shape.cells,
        num_slots=shape.inputs,
        unified=True,
        chunk_outputs=shape.rows,
        batch_size=shape.rows,
        ubatch_size=shape.rows,
        plain_rows=0,
        flash_attn=shape.flash_attn,
        states_kept=0,
        control=None,
        purpose="scores" if shape.pooling == "rank" else "vectors",
    )


@contextlib.contextmanager
def asking(config: ModelConfig, draft: ModelConfig | None = None) -> Generator[AskBuffers]:
    """Inside, the library tells what contexts take on the CPU: of this model, and of what guesses
    for it, a draft model or the heads of its file."""
    library.start()
    with _open(config, draft, _CPU_ONLY, _CPU_ONLY) as both:

        def ask(wanted: Wanted) -> ContextBytes:
            with _context(*both, draft, wanted) as (context, lines):
                compute = sum(nbytes for _, nbytes in context.residency.compute_buffers)
            return ContextBytes(_sum(_CELLS, lines), _sum(_STATES, lines), compute)

        yield ask


def ask_devices(
    config: ModelConfig,
    draft: ModelConfig | None,
    load: Callable[[Settings, int], LoadOptions],
    load_draft: Callable[[int], LoadOptions],
) -> AskPlaces:
    """What says the same of contexts as they will be: of compute buffers, by device.

    load, load_draft: how their weights will be loaded, with so many layers on GPUs
    """

    def ask(wanted: Wanted, gpu_layers: int) -> Counter[str]:
        library.start()
        found = Counter[str]()
        own, beside = load(wanted.settings, gpu_layers), load_draft(gpu_layers)
        with (
            _open(config, draft, own, beside) as both,
            _context(*both, draft, wanted) as (context, lines),
        ):
            for buffer, nbytes in context.residency.compute_buffers:
                found[library.device_of(buffer)] += nbytes
            layers = both[wanted.beside].residency.layers
            whose = draft if wanted.beside and draft is not None else config
            copied = 4 * whose.embedding * context.rows_together * _copies(lines)
            for device in {*layers[:-1]} - {layers[0]}:
                found[device] -= copied
        return found

    return ask


@contextlib.contextmanager
def _open(
    config: ModelConfig, draft: ModelConfig | None, own: LoadOptions, beside: LoadOptions
) -> Generator[tuple[Weights, Weights]]:
    """The model, and what guesses for it, which may be the same; own, beside: how to load them."""
    heads = draft is None and why_no_heads(config) is None
    with (
        library.mute_log(),
        _weights(config, own, heads=heads) as weights,
        weights if draft is None else _weights(draft, beside) as guessing,
    ):
        yield weights, guessing


@contextlib.contextmanager
def _context(
    weights: Weights, guessing: Weights, draft: ModelConfig | None, wanted: Wanted
) -> Generator[tuple[Context, list[tuple[str, str]]]]:
    """The context, and what llama.cpp says of it."""
    options = msgspec.structs.replace(
        context_options(wanted.settings, wanted.num_cells),
        unified=wanted.unified,
        chunk_outputs=wanted.chunk_outputs,
        states_kept=wanted.states_kept,
        purpose=text_purpose(draft, heads=wanted.settings.uses_heads),
        layers_read=states_read(draft),
    )
    if wanted.shape is not None:
        options = vectors_options(options, wanted.shape)
    whose, other = guessing if wanted.beside else weights, None
    with contextlib.ExitStack() as stack:
        if wanted.beside and reads_cells(draft):
            other = stack.enter_context(Context(weights, options))
            options = assistant_options(options)
        elif wanted.beside:
            purpose = "heads" if draft is None else "text"
            purpose = "drafts" if draft is not None and reads_states(draft) else purpose
            options = msgspec.structs.replace(options, purpose=purpose, layers_read=())
        if wanted.beside and draft is not None and borrows(draft):
            other = stack.enter_context(Context(weights, lender_options(options)))
        lines = stack.enter_context(library.capture_log())
        yield stack.enter_context(Context(whose, options, other=other)), lines


def _weights(config: ModelConfig, load: LoadOptions, *, heads: bool = False) -> Weights:
    """Of which contexts are asked. They have no vocabulary, which would take most of the time:
    1.2 s of a file with 262,144 tokens."""
    size = (f"{config.architecture}.vocab_size", config.vocab_size)
    overrides = (*config.overrides, ("tokenizer.ggml.model", "none"), size)
    load = msgspec.structs.replace(
        load, no_alloc=True, mmap=False, mlock=False, files=config.files, overrides=overrides,
        heads=heads, adapters={},
    )  # fmt: skip
    return Weights(Path(config.path), load)


def _copies(lines: list[tuple[str, str]]) -> int:
    """Copies of its input rows that a device makes so that its steps overlap with others'; 0: they
    do not. Where nothing is allocated llama.cpp counts them twice (tried with three devices)."""
    found = [int(each[1]) for _, line in lines if (each := _OVERLAP.search(line))]
    return found[-1] if found and found[-1] > 1 else 0


def _sum(pattern: re.Pattern[str], lines: list[tuple[str, str]]) -> int:
    found = (pattern.search(line) for _, line in lines)
    return sum(int(float(each[1]) * _MIB) for each in found if each)


def plan_in_child(plan: Callable[[], _Told], shape: type[_Told]) -> _Told | None:
    """What `plan` says in a copy of this process, which a library that dies takes along, and not
    this one; None: it died, failed or took too long. Only where no thread and no GPU is in use."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(msgspec.msgpack.encode(plan()))
        os._exit(0)
    os.close(writing)
    found = b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], _PATIENCE_S)[0] and (data := pipe.read(1 << 16)):
            found += data
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.msgpack.decode(found, type=shape)
    log.get("plan").warning("llama.cpp did not say what it allocates: buffers are estimated")
    return None
