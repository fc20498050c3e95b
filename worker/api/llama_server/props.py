"""Properties of the worker, in the shapes that callers of llama-server read."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from worker import __version__, log
from worker.api.intake.chat.templates import WITH_TOOLS, source_of
from worker.api.intake.sampling import effective_settings
from worker.engine.stats import SequenceProgress
from worker.lifecycle.default_sampling import default_sampling
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.model.calibration import PROMPT_VERSION


class Defaults(msgspec.Struct):
    """n_ctx: the longest sequence, in whatever slot, because one sequence may use all cells."""

    n_ctx: int
    params: dict[str, Any]


class Modalities(msgspec.Struct):
    """What the model takes besides text."""

    vision: bool = False
    video: bool = False
    audio: bool = False


class DecisionProps(msgspec.Struct):
    """How typed questions are read."""

    prompt_version: str
    mode: str
    orders: int


class Props(msgspec.Struct, kw_only=True):
    """GET /props."""

    default_generation_settings: Defaults
    total_slots: int
    url: str
    model_alias: str
    model_ftype: str
    model_path: str
    modalities: Modalities
    decisions: DecisionProps
    endpoint_slots: bool = True
    endpoint_props: bool = False
    endpoint_metrics: bool = True
    webui: bool
    chat_template: str
    chat_template_caps: dict[str, bool]
    chat_template_tool_use: str | msgspec.UnsetType = msgspec.UNSET
    bos_token: str
    eos_token: str
    build_info: str
    is_sleeping: bool


class NextToken(msgspec.Struct):
    """How far a sequence is.

    n_remain      tokens that it may still sample
    has_new_line  whether its answer has a whole line
    """

    n_decoded: int
    n_remain: int
    has_next_token: bool = True
    has_new_line: bool = False


class SlotInfo(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One of the sequences that run at once; `id` counts them, the oldest running one first.

    id_task  a number of its request
    params   how its tokens are drawn
    """

    id: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    id_task: int | None = None
    n_prompt_tokens: int | None = None
    n_prompt_tokens_processed: int | None = None
    n_prompt_tokens_cache: int | None = None
    params: dict[str, Any] | None = None
    next_token: list[NextToken] | None = None


def props_of(worker: Worker, loaded: Loaded) -> Props:
    """Read from the settings, the file and the loaded model."""
    vocab, tokenizer = loaded.backend.vocab, loaded.config.tokenizer
    named = tokenizer.chat_templates if tokenizer else {}
    template = source_of(tokenizer, worker.settings)
    return Props(
        default_generation_settings=Defaults(
            loaded.backend.max_length,
            effective_settings(
                default_sampling(loaded.config, worker.settings),
                worker.settings.n_predict,
                loaded.backend.end_tokens,
            ),
        ),
        total_slots=loaded.engine.snapshot.max_running,
        url=worker.url,
        model_alias=loaded.model_id,
        model_ftype=loaded.config.quant,
        webui=worker.settings.page,
        chat_template_tool_use=named.get(WITH_TOOLS, msgspec.UNSET),
        model_path=log.in_utf8(str(worker.model_path)),
        modalities=Modalities(
            vision="vision" in loaded.perceives, audio="audio" in loaded.perceives
        ),
        decisions=DecisionProps(
            (loaded.config.decision_form and loaded.config.decision_type) or PROMPT_VERSION,
            worker.settings.decisions,
            worker.settings.decisions_orders,
        ),
        chat_template=template or "",
        chat_template_caps=_caps_of(template),
        bos_token=vocab.bos_name,
        eos_token=vocab.eos_name,
        build_info=f"gguf-worker-{__version__}",
        is_sleeping=worker.is_sleeping,
    )


def _caps_of(template: str | None) -> dict[str, bool]:
    """What conversations may hold, under llama-server's names. What a template has no place for
    stands where it has one, so only thoughts depend on it."""
    if template is None:
        return {}
    places = (
        "tools tool_calls parallel_tool_calls system_role string_content typed_content "
        "object_arguments".split()
    )
    return {
        **{f"supports_{name}": True for name in places},
        "supports_preserve_reasoning": "preserve_thinking" in template,
        "supports_reasoning_effort": "reasoning_effort" in template,
    }


def slots_of(worker: Worker, loaded: Loaded) -> list[SlotInfo]:
    """Running sequences, then idle slots. Counters only: the engine's thread is not waited for."""
    engine = loaded.engine.snapshot
    running: list[SequenceProgress | None] = list(engine.running)
    running += [None] * (engine.max_running - engine.num_running)
    return [_slot(index, sequence, worker, loaded) for index, sequence in enumerate(running)]


def _slot(
    index: int, sequence: SequenceProgress | None, worker: Worker, loaded: Loaded
) -> SlotInfo:
    slot = SlotInfo(
        id=index,
        n_ctx=loaded.backend.max_length,
        speculative=worker.loaded.guesses != "none",
        is_processing=sequence is not None,
    )
    if sequence is not None:
        sampled = sequence.num_sampled
        slot.n_prompt_tokens = sequence.num_prompt
        slot.n_prompt_tokens_processed = min(sequence.num_computed, sequence.num_prompt)
        slot.n_prompt_tokens_cache = sequence.num_cached
        slot.id_task = zlib.crc32(sequence.id.encode()) >> 1
        wanted = sequence.params
        slot.params = effective_settings(
            wanted.sampling, wanted.max_tokens, loaded.backend.end_tokens
        )
        rest = sequence.limit - sequence.num_prompt - sampled
        slot.next_token = [NextToken(sampled, rest, has_new_line=sequence.has_line)]
    return slot
