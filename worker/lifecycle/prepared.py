"""What is decided before anything is loaded, and the weights, which nothing else is needed for.

So native code reads the weights while Python imports what comes after them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from worker import log, machine
from worker.errors import ModelFileError, ModelLoadError, RequestError, UsageError
from worker.lifecycle.adapters import Adapter, load_adapters
from worker.lifecycle.devices import Devices, choose_devices
from worker.llama import hidden_states, library, rpc
from worker.llama.packing import packed_encodings
from worker.llama.process import death
from worker.llama.weights import LoadOptions, Weights
from worker.memory.contexts import AskBuffers, AskPlaces
from worker.memory.offload import placements
from worker.memory.plan import MemoryPlan, check_fit, check_room, estimate, is_ample
from worker.model.adapter import AdapterConfig
from worker.model.architectures import doubt
from worker.model.config import ModelConfig, load_config
from worker.model.control_vector import ControlVector, load_control_vector
from worker.model.drafts import (
    check_forgets,
    check_heads,
    load_draft_config,
    reads_cells,
    reads_states,
    why_no_heads,
)
from worker.model.overrides import RopeWish, Wishes
from worker.model.projector import (
    ProjectorConfig,
    check_projector,
    load_projector,
    projector_beside,
)
from worker.settings import Settings

# Backends that need no device file, nor a driver that reads and starts what it likes.
_WITHOUT_FILES = frozenset({"cpu", "blas", "rpc"})
_CPU_ONLY = _WITHOUT_FILES - {"rpc"}


class Prepared(msgspec.Struct, frozen=True):
    """What is decided before anything is loaded.

    memory  what was free then
    guesses who guesses tokens: auto, none, ngram, model, mtp or both
    draft   the model that does, or None
    adapters  of the model, that requests can choose
    control   vector that is added for all of them
    projector makes vectors of pictures and sounds
    """

    config: ModelConfig
    devices: Devices
    plan: MemoryPlan
    memory: machine.Memory
    guesses: str = "none"
    draft: ModelConfig | None = None
    adapters: tuple[Adapter, ...] = ()
    control: ControlVector | None = None
    projector: ProjectorConfig | None = None

    @property
    def uses_heads(self) -> bool:
        """Whether heads in the model's own file guess."""
        return self.guesses in ("mtp", "both") and self.draft is None


def prepare(path: Path, settings: Settings, *, sees: bool = True) -> Prepared:
    """Check the file and fit the model, and what drafts for it, to the devices and their memory.
    llama.cpp is asked what contexts take where an estimate could decide: see `ask_when_idle`.

    sees: with the projector
    Raises UsageError, ModelFileError, BackendError, ResidencyError or DoesNotFitError.
    """
    library.proof()  # which goes on beside the load where it is not known yet
    try:
        config = load_config(path, purpose="serve", wishes=wishes_of(settings))
    except ModelFileError as error:
        if error.code != "DRAFT_MODEL":
            raise
        raise UsageError(error.message, hint=error.hint, code=error.code) from None
    if newer := doubt(config.architecture):
        log.get("load").warning(newer, console=newer, architecture=config.architecture)
    devices = find_devices(settings)
    check_task(config, settings)
    check_template(config, settings)
    _check_defaults(config, settings)
    draft = load_draft(config, settings)
    adapters = load_adapters(config, settings)
    control = _load_control(config, settings)
    beside = [adapter.config for adapter in adapters]
    memory = memory_with(devices)
    projector = find_projector(config, settings) if sees else None
    fitting = Fitting(config, settings, memory, draft, beside, projector)
    fitted = fitting.fit()
    is_simple = config.recurrent is None and fitted.plan.newer is None
    if not (is_simple and is_ample(fitted.plan, memory)):
        from worker.lifecycle import buffers  # brings the modules of a context

        with buffers.asking(config, draft) as ask:
            fitted = fitting.fit(ask, buffer_places(config, settings, devices, draft))
    fitted.tell()
    check_fit(fitted.plan, config)
    guesses = "none" if config.only_embeds else fitted.settings.guesses
    return Prepared(
        config, devices, fitted.plan, memory, guesses, draft, adapters, control, projector
    )


class Fitted(NamedTuple):
    """The settings, with those who can guess in this build and in this memory, and the plan.

    why_without  why the file's heads are not used, though they would be
    """

    settings: Settings
    plan: MemoryPlan
    why_without: str | None = None

    def tell(self) -> None:
        """Log what is not as the file promises."""
        if self.why_without is not None:
            log.get("load").warning("the file's MTP heads are not used", reason=self.why_without)


class Fitting(NamedTuple):
    """What is fitted to the memory."""

    config: ModelConfig
    settings: Settings
    memory: machine.Memory
    draft: ModelConfig | None = None
    adapters: Sequence[AdapterConfig] = ()
    projector: ProjectorConfig | None = None

    def fit(self, ask: AskBuffers | None = None, places: AskPlaces | None = None) -> Fitted:
        """Heads that nobody named are used as `both` does, where they cost no context.

        ask, places: see `estimate`

        Raises UsageError where heads were asked for and the file has none, or guesses from the text
        of a model that cannot forget them.
        """
        config, settings = self.config, self.settings
        if settings.guesses == "mtp" and reads_cells(self.draft):  # llama-server calls it so
            settings = msgspec.structs.replace(settings, draft="model")
        if settings.guesses == "ngram":
            check_forgets(config, "--draft")
        is_asked = settings.uses_heads
        if is_asked:
            check_heads(config)
        elif settings.guesses != "auto":
            return Fitted(settings, self._plan(settings, ask, places))
        bare = msgspec.structs.replace(settings, draft="auto")
        plan = self._plan(bare, ask, places)
        if settings.guesses == "mtp" or (config.recurrent is not None and not plan.states_kept):
            bare = msgspec.structs.replace(settings, draft="none")
        if not is_asked and (settings.draft_model or config.only_embeds or why_no_heads(config)):
            return Fitted(bare, plan)
        why = hidden_states.why_missing()
        if why is None:
            if not is_asked:
                settings = msgspec.structs.replace(settings, draft="both")
            using = self._plan(settings, ask, places)
            if is_asked or (using.fits and _sizes(using) == _sizes(plan)):
                return Fitted(settings, using)
            why = "they would take memory that the context needs"
        return Fitted(bare, self._plan(bare, ask, places), why)

    def _plan(
        self, settings: Settings, ask: AskBuffers | None, places: AskPlaces | None
    ) -> MemoryPlan:
        draft, adapters, projector = self.draft, self.adapters, self.projector
        return estimate(self.config, settings, self.memory, draft, adapters, projector, ask, places)


def _sizes(plan: MemoryPlan) -> tuple[int, ...]:
    return plan.num_cells, plan.num_slots, plan.gpu_layers


def find_projector(config: ModelConfig, settings: Settings) -> ProjectorConfig | None:
    """The one that is named, or lies beside the model. Raises UsageError, ModelFileError."""
    can_read = library.reads_media()
    if settings.mmproj is not None:
        if not can_read:
            raise UsageError(
                "--mmproj: this build of llama.cpp has no libmtmd, which encodes images and audio.",
                hint="Install it with `make install MTMD=1`, or leave --mmproj out.",
            )
        projector = load_projector(Path(settings.mmproj))
        check_projector(projector, config)
        return projector
    beside = projector_beside(Path(config.path)) if settings.mmproj_auto else None
    if beside is None or config.only_embeds:
        return None
    if not can_read:
        log.get("load").warning(
            "this build has no libmtmd, so only text is read",
            file=beside.name,
            hint="make install MTMD=1",
        )
        return None
    try:
        projector = load_projector(beside)
        check_projector(projector, config)
    except ModelFileError as error:
        log.get("load").warning("the projector beside the model is left out", reason=error.message)
        return None
    log.get("load").info("the projector beside the model is used", file=beside.name)
    return projector


def _load_control(config: ModelConfig, settings: Settings) -> ControlVector | None:
    if not settings.control_vector:
        return None
    files = [(each.file, each.scale) for each in settings.control_vector]
    control = load_control_vector(files, settings.control_layers, config)
    log.get("load").info("control vectors are added", first=control.first, last=control.last)
    return control


def check_task(config: ModelConfig, settings: Settings) -> None:
    """Raise UsageError for options that mean nothing for a model that writes no text."""
    given = {
        "--draft": settings.draft not in (None, "auto", "none"),
        "--draft-model": settings.draft_model is not None,
        "--mmproj": settings.mmproj is not None,
        "--lora": bool(settings.lora),
        "--lora-dir": bool(settings.lora_dir),
        "--control-vector": bool(settings.control_vector),
        "--grammar": settings.grammar is not None,
        "--json-schema": settings.json_schema is not None,
        "--logit-bias": settings.logit_bias is not None,
        "--cache-ram": bool(settings.cache_ram),
        "--cache-dir": settings.cache_dir is not None,
    }
    named = [name for name, is_given in given.items() if is_given]
    if config.only_embeds and named:
        raise UsageError(f"{named[0]} is for text, and this {config.task}.", hint="Leave it out.")


def check_template(config: ModelConfig, settings: Settings) -> None:
    """Raise UsageError where `--chat-template` names no template of the file's or of ours, or where
    what was given is none."""
    file, asked = settings.chat_template_file, settings.chat_template
    given = file if file is not None else asked
    if given is None:
        return
    from worker.chat.template import TEMPLATES, ChatTemplate

    if file is not None or "{" in given:
        option = "--chat-template" if file is None else "--chat-template-file"
        try:
            ChatTemplate(given, bos="", eos="")
        except RequestError as error:
            why = error.message.removeprefix("The model's chat template ")
            raise UsageError(f"The template of {option} {why}", hint="Correct it.") from None
        return
    named = config.tokenizer.chat_templates if config.tokenizer else {}
    known = {**TEMPLATES, **named}
    if given not in known:
        raise UsageError(
            f"--chat-template {given[:50]} names no template.",
            hint=f"Known are {', '.join(known)}. A text with {{ is the template itself.",
        )


def _check_defaults(config: ModelConfig, settings: Settings) -> None:
    """Raise UsageError for defaults of requests that the model can never hold."""
    if (settings.grammar, settings.json_schema, settings.logit_bias) != (None, None, None):
        from worker.lifecycle.default_sampling import check_defaults  # few starts need it

        check_defaults(config, settings)


def wishes_of(settings: Settings) -> Wishes:
    """What the settings say of the model in the place of its file."""
    return Wishes(
        settings.override_kv,
        RopeWish(
            scaling=settings.rope_scaling,
            factor=settings.rope_scale,
            base=settings.rope_freq_base,
            original=settings.yarn_orig_ctx,
            longest=settings.ctx_size,
        ),
    )


def load_draft(config: ModelConfig, settings: Settings) -> ModelConfig | None:
    """The draft model's config, once its vocabulary is that of `config`; None: there is none.

    Raises UsageError, ModelFileError.
    """
    if settings.draft_model is None:
        return None
    draft = load_draft_config(Path(settings.draft_model), config, wishes_of(settings).rope)
    if settings.guesses == "mtp" and not reads_cells(draft):
        raise UsageError("--draft mtp does not use the draft model.", hint="Leave one of them out.")
    needs_layers = not reads_cells(draft)
    if reads_states(draft) and (why := hidden_states.why_missing(layers=needs_layers)):
        raise UsageError(
            f"{Path(draft.path).name} reads hidden states, and {why}.",
            hint="Leave --draft-model out, or install the pinned llama.cpp with `make install`.",
        )
    return draft


def find_devices(settings: Settings) -> Devices:
    """The devices that the settings ask for. Raises UsageError, BackendError or ResidencyError."""
    check_build(settings)
    rpc.connect(settings.rpc)
    return choose_devices(settings, library.devices())


def memory_with(devices: Devices) -> machine.Memory:
    """What is free on this machine and on those devices, and how its CPU keeps weights."""
    return msgspec.structs.replace(
        machine.memory(), devices=devices.memory, packed=packed_encodings()
    )


def check_memory(prepared: Prepared, settings: Settings) -> None:
    """Raise DoesNotFitError where the model, which has been put away, finds no room any more."""
    devices = choose_devices(settings, library.devices())
    check_room(prepared.plan, memory_with(devices))


def load_options(
    config: ModelConfig, settings: Settings, devices: Devices, gpu_layers: int, cpu_experts: int
) -> LoadOptions:
    """How the model's weights are loaded, without its adapters and heads."""
    return LoadOptions(
        n_gpu_layers=gpu_layers if devices.chosen else _layers_without_gpu(settings),
        devices=tuple(d.name for d in devices.chosen) if devices.explicit else None,
        tensor_split=settings.tensor_split,
        split_mode=settings.split_mode,
        main_gpu=settings.main_gpu,
        mmap=maps_file(settings, devices),
        mlock=settings.mlock,
        overrides=config.overrides,
        files=config.files,
        placed=placements(settings, cpu_experts),
    )


def draft_options(
    config: ModelConfig, settings: Settings, devices: Devices, gpu_layers: int
) -> LoadOptions:
    """How a draft model's are: it goes to the devices that the model's layers go to, as a whole."""
    return LoadOptions(
        n_gpu_layers=-1 if devices.chosen and gpu_layers else 0,
        devices=tuple(d.name for d in devices.chosen) if devices.explicit else None,
        split_mode=settings.split_mode,
        main_gpu=settings.main_gpu,
        mmap=maps_file(settings, devices),
        files=config.files,
        overrides=config.overrides,
    )


def buffer_places(
    config: ModelConfig, settings: Settings, devices: Devices, draft: ModelConfig | None
) -> AskPlaces | None:
    """What asks llama.cpp of these devices; None: there are none."""
    if not devices.chosen:
        return None
    from worker.lifecycle import buffers

    def load(chosen: Settings, gpu_layers: int) -> LoadOptions:
        return load_options(config, chosen, devices, gpu_layers, chosen.cpu_moe or 0)

    def load_draft(gpu_layers: int) -> LoadOptions:
        return draft_options(draft or config, settings, devices, gpu_layers)

    return buffers.ask_devices(config, draft, load, load_draft)


def load_weights(
    path: Path,
    settings: Settings,
    prepared: Prepared,
    on_progress: Callable[[float], bool] | None = None,
) -> Weights:
    """Load `path` as `settings` and the plan say, checked for residency.

    `on_progress` gets 0..1 and returns False to give up; it is asked once more when all is loaded.
    Raises what `Weights` raises, and ModelLoadError for a model that does not continue text.
    """
    devices, plan = prepared.devices, prepared.plan
    note_native(f"it read the weights of {path.name}", path, prepared.config)
    options = load_options(prepared.config, settings, devices, plan.gpu_layers, plan.cpu_experts)
    adapters = {each.digest: each.config.files[0] for each in prepared.adapters}
    weights = Weights(
        path,
        msgspec.structs.replace(options, heads=prepared.uses_heads, adapters=adapters),
        on_progress,
    )
    try:
        if not weights.generates and not prepared.config.only_embeds:
            raise ModelLoadError(
                f"{path.name} does not continue text: it is an encoder or a diffusion model.",
                hint="Choose a decoder model.",
            )
        if on_progress is not None and not on_progress(1.0):
            raise ModelLoadError(f"Loading {path.name} was given up.")
    except BaseException:
        weights.close()
        raise
    return weights


def _layers_without_gpu(settings: Settings) -> int:
    """Those to offload where no device is chosen, which a build with GPUs refuses.

    Command lines that are copied say `-ngl 99` everywhere; a build for CPUs alone has no other
    place for a layer, so nobody is misled.
    """
    wanted = settings.n_gpu_layers or 0
    if wanted and not {name.lower() for name in library.build().backends} - _CPU_ONLY:
        log.get("load").warning("this build knows no GPU: all layers are computed on the CPU")
        return 0
    return wanted


def note_native(what: str, path: Path, config: ModelConfig) -> None:
    """Say what native code does from now on, should it die of it."""
    encodings = ", ".join(config.mix)
    death.note_task(
        f"{what} ({encodings})",
        f"Look at the file with `worker check --deep {path}`; `make install` proves llama.cpp on "
        "this CPU again.",
    )


def maps_file(settings: Settings, devices: Devices) -> bool:
    """Whether a model file is mapped, not read: unless said otherwise, where no GPU gets layers.

    A Llama-1B Q4_K_M is ready after 1.6 s instead of 3.4. What is read can be checked for its
    place on a GPU tensor by tensor, a mapping cannot.
    """
    return not devices.chosen if settings.mmap is None else settings.mmap


def check_build(settings: Settings) -> None:
    """Raise UsageError for settings that this build cannot follow."""
    if settings.backend is None and not settings.sandbox:
        return
    have = {name.lower() for name in library.build().backends}
    if settings.sandbox and (hidden := have - _WITHOUT_FILES):
        raise UsageError(
            f"--sandbox hides the devices of this build's backend {min(hidden)}.",
            hint="Leave it out, or install with `make install BACKEND=cpu`.",
        )
    if settings.backend is None:
        return
    have |= {"metal"} if "mtl" in have else set()
    if settings.backend not in have:
        raise UsageError(
            f"This build has no {settings.backend} backend, it has: {', '.join(sorted(have))}.",
            hint=f"Install one with `make install BACKEND={settings.backend}`.",
        )
