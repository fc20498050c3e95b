"""From a file to a model that decodes: checked, planned, placed, loaded, warmed up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from worker import log, machine
from worker.engine.padding import Padding
from worker.errors import ModelLoadError, UsageError
from worker.lifecycle.devices import Devices, choose_devices
from worker.llama import library, rpc
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.draft import nextn
from worker.llama.draft.heads import Heads
from worker.llama.draft.model import DraftModel
from worker.llama.placement import allocated
from worker.llama.weights import LoadOptions
from worker.memory.buffers import CACHE_ENCODINGS
from worker.memory.offload import HOST
from worker.memory.plan import CELL_STEP, MemoryPlan, plan_memory
from worker.model.config import ModelConfig, load_config
from worker.model.drafts import load_draft_config
from worker.model.heads import check_heads, why_no_heads
from worker.settings import Settings


class Prepared(msgspec.Struct, frozen=True):
    """What is decided before anything is loaded.

    guesses who guesses tokens: none, ngram, model, mtp or both
    draft   the model that does, or None
    """

    config: ModelConfig
    devices: Devices
    plan: MemoryPlan
    guesses: str = "none"
    draft: ModelConfig | None = None

    @property
    def uses_heads(self) -> bool:
        """Whether heads in the model's own file guess."""
        return self.guesses in ("mtp", "both") and self.draft is None


def prepare(path: Path, settings: Settings) -> Prepared:
    """Check the file and fit the model, and what drafts for it, to the devices and their memory.

    Raises UsageError, ModelFileError, BackendError, ResidencyError or DoesNotFitError.
    """
    devices = find_devices(settings)
    config = load_config(path)
    draft = load_draft(config, settings)
    settings = with_heads(config, settings)
    plan = plan_memory(config, settings, memory_with(devices), draft)
    return Prepared(config, devices, plan, settings.guesses, draft)


def load_draft(config: ModelConfig, settings: Settings) -> ModelConfig | None:
    """The draft model's config, once its vocabulary is that of `config`; None: there is none.

    Raises UsageError, ModelFileError.
    """
    if settings.draft_model is None:
        return None
    return load_draft_config(Path(settings.draft_model), config)


def with_heads(config: ModelConfig, settings: Settings) -> Settings:
    """The settings, without heads that guess tokens where this build cannot use them.

    Raises UsageError where heads were asked for and the file has none.
    """
    if not settings.uses_heads:
        if settings.guesses == "none" and why_no_heads(config) is None:
            log.get("load").info("the file has heads that guess tokens: --draft mtp uses them")
        return settings
    check_heads(config)
    why = nextn.why_missing()
    if why is None:
        return settings
    log.get("load").warning("the file's heads that guess tokens are not used", reason=why)
    return msgspec.structs.replace(settings, draft="ngram" if settings.draft == "both" else "none")


def find_devices(settings: Settings) -> Devices:
    """The devices that the settings ask for. Raises UsageError, BackendError or ResidencyError."""
    check_build(settings)
    rpc.connect(settings.rpc)
    return choose_devices(settings, library.devices())


def memory_with(devices: Devices) -> machine.Memory:
    """What is free on this machine and on those devices."""
    return msgspec.structs.replace(machine.memory(), devices=devices.memory)


def open_backend(
    path: Path,
    settings: Settings,
    prepared: Prepared,
    on_progress: Callable[[float], bool] | None = None,
    *,
    chunk_outputs: int = 64,
) -> LlamaBackend:
    """Load `path` as `settings` and the plan say, checked for residency and warmed up.

    `on_progress` gets 0..1 and returns False to give up; it is asked once more when all is loaded.
    `chunk_outputs` rows of a prompt can have their logits in one batch.
    """
    threads = settings.threads or machine.usable_cpus()
    devices, plan = prepared.devices, prepared.plan
    layers = plan.gpu_layers if devices.chosen else settings.n_gpu_layers or 0
    backend = LlamaBackend(
        path,
        LoadOptions(
            n_gpu_layers=layers,
            devices=tuple(d.name for d in devices.chosen) if devices.explicit else (),
            tensor_split=settings.tensor_split,
            split_mode=settings.split_mode,
            main_gpu=settings.main_gpu,
            mmap=maps_file(settings, prepared.devices),
            files=prepared.config.files,
            heads=prepared.uses_heads,
        ),
        ContextOptions(
            num_cells=plan.num_cells,
            num_slots=slots_for(plan),
            chunk_outputs=chunk_outputs,
            batch_size=settings.batch_size,
            ubatch_size=settings.ubatch_size,
            threads=threads,
            threads_batch=settings.threads_batch or threads,
            cache_type_k=settings.cache_type_k,
            cache_type_v=settings.cache_type_v,
            flash_attn=settings.flash_attn,
            purpose="text beside heads" if prepared.uses_heads else "text",
        ),
        on_progress=on_progress,
    )
    try:
        if not backend.weights.generates:
            raise ModelLoadError(
                f"{path.name} does not continue text: it is an encoder or a diffusion model.",
                hint="Choose a decoder model.",
            )
        if on_progress is not None and not on_progress(1.0):
            raise ModelLoadError(f"Loading {path.name} was given up.")
        backend.warm_up()
        if settings.threads is settings.threads_batch is None:
            backend.choose_threads()
        _tell_of_slow_cache(backend, settings)
    except BaseException:
        backend.close()
        raise
    return backend


def _tell_of_slow_cache(backend: LlamaBackend, settings: Settings) -> None:
    """Log what a quantised cache costs on a CPU, which the memory that it saves does not show.

    After 4,096 tokens a 125M shape reads 39 tokens a second from q8_0 and 114 from f16, a Llama-1B
    9.5 and 26 (one thread); with two threads 19 and 74.
    """
    types = {settings.cache_type_k, settings.cache_type_v}
    on_cpu = any(device == "CPU" for _, device in backend.context.residency.layers)
    if on_cpu and any(CACHE_ENCODINGS[name].quantized for name in types):
        log.get("load").warning(
            "a quantised KV cache on a CPU: after 4,096 tokens reading is 3 to 4 times slower",
            cache_type_k=settings.cache_type_k,
            cache_type_v=settings.cache_type_v,
            hint="use f16 if it fits; `worker bench MODEL` measures it on this machine",
        )


def open_draft(
    settings: Settings, prepared: Prepared, backend: LlamaBackend
) -> DraftModel | Heads | None:
    """Load what guesses tokens, if there is something, with a context beside the backend's.

    A draft model goes to the devices that the model's layers go to, as a whole; heads are where
    their layers are. Raises what `open_backend` raises.
    """
    if prepared.uses_heads:
        draft = Heads(backend)
        if not backend.takes_back:
            log.get("load").warning(
                "heads that guess tokens are loaded and inactive: this build of llama.cpp cannot "
                "take a wrong guess back in such a model"
            )
    elif prepared.draft is not None:
        draft = _open_model(prepared.draft, settings, prepared, backend)
    else:
        return None
    try:
        draft.warm_up()
    except BaseException:
        draft.close()
        raise
    return draft


def _open_model(
    config: ModelConfig, settings: Settings, prepared: Prepared, backend: LlamaBackend
) -> DraftModel:
    devices, plan = prepared.devices, prepared.plan
    offloads = bool(devices.chosen) and plan.gpu_layers > 0
    return DraftModel(
        Path(config.path),
        LoadOptions(
            n_gpu_layers=-1 if offloads else 0,
            devices=tuple(d.name for d in devices.chosen) if devices.explicit else (),
            split_mode=settings.split_mode,
            main_gpu=settings.main_gpu,
            mmap=maps_file(settings, devices),
            files=config.files,
        ),
        ContextOptions(
            num_cells=plan.num_cells,
            num_slots=backend.num_slots,
            batch_size=settings.batch_size,
            ubatch_size=settings.ubatch_size,
            threads=backend.context.threads,
            threads_batch=backend.context.threads_batch,
            cache_type_k=settings.cache_type_k,
            cache_type_v=settings.cache_type_v,
            flash_attn=settings.flash_attn,
        ),
        beside=backend.context,
    )


def maps_file(settings: Settings, devices: Devices) -> bool:
    """Whether a model file is mapped, not read: unless said otherwise, where no GPU gets layers.

    A Llama-1B Q4_K_M is ready after 1.6 s instead of 3.4. What is read can be checked for its
    place on a GPU tensor by tensor, a mapping cannot.
    """
    return not devices.chosen if settings.mmap is None else settings.mmap


def slots_for(plan: MemoryPlan) -> int:
    """Slots for the plan's sequences: a whole block of them, if a stream gets no shorter by it.

    So a step of 15 rows can be filled up to 16, which is faster (`engine/padding.py`). Not where a
    slot has a recurrent state: that is large, and such steps are not filled.
    """
    slots = plan.num_slots
    if plan.recurrent_bytes:
        return slots
    whole = slots + Padding.missing(slots)
    steps = plan.num_cells // CELL_STEP
    return whole if slots > 1 and steps // whole == steps // slots else slots


def gpu_bytes(
    devices: Devices, backend: LlamaBackend, draft: DraftModel | Heads | None = None
) -> int:
    """Bytes of GPU memory that loading took, measured; 0 where the CPU's memory holds the model.

    devices: with what was free on them before the load
    """
    if devices.is_unified:
        return 0
    now = {device.name: device.memory_free for device in library.devices()}
    taken = (d.memory_free - now.get(d.name, d.memory_free) for d in devices.chosen)
    # A CPU behind an RPC server does not tell what is free: there llama.cpp's word counts.
    told = (place.nbytes for place in allocated(backend, draft) if place.device != HOST)
    return max(sum(taken), sum(told))


def check_build(settings: Settings) -> None:
    """Raise UsageError for settings that this build cannot follow."""
    if settings.backend is None:
        return
    have = {name.lower() for name in library.build().backends}
    have |= {"metal"} if "mtl" in have else set()
    if settings.backend not in have:
        raise UsageError(
            f"This build has no {settings.backend} backend, it has: {', '.join(sorted(have))}.",
            hint=f"Install one with `make install BACKEND={settings.backend}`.",
        )
