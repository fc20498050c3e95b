"""What llama.cpp says it would allocate, and what it then allocates."""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.support.models import architectures, ggufs, heads
from tests.support.models.embedders import Embedder
from worker import log
from worker.lifecycle.buffers import asking, context_options, plan_in_child, vectors_options
from worker.lifecycle.prepared import prepare
from worker.llama.backend import LlamaBackend
from worker.llama.companion import DraftModel, Heads
from worker.llama.context import Context
from worker.llama.weights import LoadOptions, Weights
from worker.machine import DeviceMemory, Memory
from worker.memory.companions import HEAD_OUTPUTS
from worker.memory.contexts import CHUNK_OUTPUTS, ContextBytes, Wanted
from worker.memory.embedding import embedding_shape
from worker.memory.estimate import estimator
from worker.memory.plan import MemoryPlan, estimate, process_bytes
from worker.model.config import load_config
from worker.model.drafts import can_forget
from worker.settings import Settings

PLENTY = Memory(total=1 << 36, available=1 << 36)
PRINTED = 2 * 10_486  # two buffers in MiB with two decimals
WRITERS: dict[str, Callable[[Path], Path]] = {
    **architectures.WRITERS,
    "glm4moe with a head": heads.write_glm4moe,
    "qwen35 with a head": heads.write_qwen35,
}


@pytest.fixture(autouse=True, scope="module")
def quiet() -> None:
    """llama.cpp's own lines would bury a failure."""
    log.configure("console")


@pytest.mark.parametrize("name", WRITERS)
def test_contexts_for_text(name: str, tmp_path: Path) -> None:
    """Cells, states and compute buffers of a plan are those of the real context, in both layouts,
    whatever is estimated."""
    path = WRITERS[name](tmp_path / "model.gguf")
    config = load_config(path)
    with asking(config) as ask, Weights(path, LoadOptions(n_gpu_layers=0)) as weights:
        for parallel, unified, flash_attn in (
            (1, True, "auto"),
            (4, True, "off"),
            (4, False, "on"),
        ):
            settings = Settings(
                parallel=parallel,
                flash_attn=flash_attn,
                ctx_size=4096,
                draft="ngram",
                ubatch_size=64,
            )
            if not can_forget(config):
                settings = msgspec.structs.replace(settings, draft="none")
            plan = estimate(config, settings, PLENTY, ask=ask)
            options = msgspec.structs.replace(
                context_options(settings, 4096),
                unified=unified,
                chunk_outputs=CHUNK_OUTPUTS if unified else 0,
                states_kept=plan.states_kept,
            )
            with Context(weights, options) as context:
                held = context.residency
            cells = sum(nbytes for _, nbytes in held.kv_buffers)
            compute = sum(nbytes for _, nbytes in held.compute_buffers)
            assert plan.kv_bytes + plan.recurrent_bytes == pytest.approx(cells, abs=PRINTED)
            if unified:
                assert plan.compute_bytes == compute
            else:
                rest = plan.first_bytes - plan.weights_bytes - process_bytes(config)
                beside = 4 * config.vocab_size * parallel
                assert rest - beside == pytest.approx(cells + compute, abs=PRINTED)


@pytest.mark.parametrize("architecture", ["bert", "nomic-bert"])
def test_contexts_for_vectors(architecture: str, tmp_path: Path) -> None:
    """The compute buffer is that of the real context."""
    path, settings = Embedder(architecture).write(tmp_path / "model.gguf"), Settings()
    config = load_config(path, purpose="serve")
    shape = embedding_shape(config, settings, 512)
    assert shape is not None
    with asking(config) as ask:
        found = ask(Wanted(settings=settings, num_cells=512, shape=shape))
    options = vectors_options(context_options(settings, 512), shape)
    with Weights(path, LoadOptions(n_gpu_layers=0)) as weights, Context(weights, options) as real:
        assert found.compute == sum(nbytes for _, nbytes in real.residency.compute_buffers)


def test_the_answer_takes_the_place_of_an_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan says what the library said, whatever is estimated, and that it was asked."""
    config, settings = load_config(ggufs.write_llama(tmp_path / "m.gguf")), Settings(ctx_size=4096)

    def ask(wanted: Wanted) -> ContextBytes:
        assert wanted.shape is None
        if wanted.beside:
            return ContextBytes(wanted.num_cells * 3000, 0, 5 << 20)
        part, slots = 1 if wanted.unified else 2, wanted.settings.slots
        return ContextBytes(wanted.num_cells * 7000, slots * 50_000, (90 << 20) // part)

    bare = estimate(config, settings, PLENTY)
    plan = estimate(config, settings, PLENTY, ask=ask)
    assert (plan.is_asked, bare.is_asked) == (True, False)
    assert (plan.estimated, bare.estimated) == ((), ("kv", "compute"))
    assert plan.kv_bytes == 7000 * 4096
    assert plan.recurrent_bytes == 50_000 * plan.num_slots
    assert plan.compute_bytes == 90 << 20
    assert plan.first_bytes - bare.first_bytes > 40 << 20

    two = [estimate(config, settings, PLENTY, config, ask=each) for each in (None, ask)]
    held = two[0].draft_bytes - sum(
        estimator(config)(Wanted(settings=settings, num_cells=4096, chunk_outputs=0))
    )
    assert two[1].draft_bytes == held + 3000 * 4096 + (5 << 20)
    assert [each.estimated for each in two] == [("kv", "compute", "draft"), ()]
    gpu = DeviceMemory("CUDA0", 1 << 36)
    beside = msgspec.structs.replace(PLENTY, devices=(gpu,))
    offloaded = estimate(config, settings, beside, ask=ask)
    assert offloaded.kv_bytes == 7000 * 4096
    assert offloaded.estimated == ("compute",)


@pytest.mark.parametrize("guesses", ["model", "mtp"])
def test_contexts_that_guess(guesses: str, tmp_path: Path) -> None:
    """Of a draft model and of heads, cells and compute buffers are those of the real context."""
    path, draft = tmp_path / "model.gguf", None
    if guesses == "model":
        path, draft = ggufs.write_llama(path), ggufs.write_llama(tmp_path / "draft.gguf", layers=1)
    else:
        path = heads.write_glm4moe(path)
    settings = Settings(ctx_size=2048, parallel=2, draft=guesses, draft_model=draft and str(draft))
    prepared = prepare(path, settings)
    with asking(prepared.config, prepared.draft) as ask:
        outputs = 0 if draft else 2 * (HEAD_OUTPUTS - 1)
        found = ask(Wanted(settings=settings, num_cells=2048, chunk_outputs=outputs, beside=True))
    load = LoadOptions(n_gpu_layers=0, heads=prepared.uses_heads)
    options = context_options(settings, 2048)
    with LlamaBackend.open(path, load, options) as backend:
        companion = (
            Heads(backend)
            if draft is None
            else DraftModel(draft, LoadOptions(n_gpu_layers=0), options)
        )
        with companion:
            held = companion.context.residency
    assert found.kv == pytest.approx(sum(size for _, size in held.kv_buffers), abs=PRINTED)
    assert found.compute == sum(size for _, size in held.compute_buffers)


def test_no_size_is_asked_that_takes_memory(tmp_path: Path) -> None:
    """llama.cpp keeps notes of each cell, so of 50 million cells the plan asks for a part."""
    config = load_config(ggufs.write_llama(tmp_path / "m.gguf"))
    asked: list[int] = []

    def ask(wanted: Wanted) -> ContextBytes:
        asked.append(wanted.num_cells)
        return ContextBytes(wanted.num_cells * 7000, 0, 1 << 20)

    plan = estimate(config, Settings(ctx_size=50_000_000), PLENTY, ask=ask)
    assert plan.kv_bytes == 7000 * plan.num_cells
    assert max(asked) <= 1 << 18


def _died() -> MemoryPlan:
    faulthandler.disable()
    os.abort()


def _failed() -> MemoryPlan:
    raise ValueError


def _slept() -> MemoryPlan:
    threading.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("plan", [_died, _failed, _slept])
def test_a_library_that_dies_or_hangs(
    plan: Callable[[], MemoryPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that asked lives on, and there is no answer."""
    if plan is _slept:
        monkeypatch.setattr("worker.lifecycle.buffers._PATIENCE_S", 0.1)
    assert plan_in_child(plan, MemoryPlan) is None


def test_the_answer_of_the_child(tmp_path: Path) -> None:
    """It is the plan as it was made there."""
    config = load_config(ggufs.write_llama(tmp_path / "m.gguf"))

    def plan() -> MemoryPlan:
        with asking(config) as ask:
            return estimate(config, Settings(ctx_size=4096), PLENTY, ask=ask)

    found = plan_in_child(plan, MemoryPlan)
    assert found is not None
    assert found.is_asked
    assert found == plan()


def test_a_start_asks_where_an_estimate_could_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking takes a part of a start, so a worker with memory to spare does not."""
    path, settings = ggufs.write_llama(tmp_path / "m.gguf"), Settings(ctx_size=4096)
    need = estimate(load_config(path), settings, PLENTY).total_bytes
    for available, is_asked in ((4 * need, False), (need * 150 // 100, True)):
        room = Memory(total=1 << 36, available=available)

        def memory_with(_: object, room: Memory = room) -> Memory:
            return room

        monkeypatch.setattr("worker.lifecycle.prepared.memory_with", memory_with)
        assert prepare(path, settings).plan.is_asked is is_asked
