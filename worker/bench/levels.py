"""From the stages' answers to a level's report."""

from __future__ import annotations

import msgspec

from worker.bench.bandwidth import Bandwidth
from worker.bench.files import File
from worker.bench.job import QualityAnswer, ServeAnswer, SpeedAnswer
from worker.bench.loading import Loading
from worker.bench.plan import Level
from worker.bench.results import LevelQuality, LevelReport, Memory, Speed
from worker.bench.speed import Requests, merged
from worker.gguf.quant import FILE_TYPES, GUESSED
from worker.model.config import ModelConfig


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What the stages of a level answered; None where they did not."""

    load: Loading | None = None
    speed: SpeedAnswer | None = None
    serve: ServeAnswer | None = None
    serve_again: ServeAnswer | None = None
    quality: QualityAnswer | None = None


def level_report(
    level: Level, file: File, found: Answers, bandwidth: Bandwidth, errors: dict[str, str], *,
    cached: list[str], is_reference: bool,
) -> LevelReport:  # fmt: skip
    """The report of a level with whatever was found."""
    config = file.config
    file_type = FILE_TYPES.get((config.file_type or 0) & ~GUESSED)
    return LevelReport(
        quant=level.name,
        is_reference=is_reference,
        file=file.path,
        sha256=file.sha256,
        size_bytes=sum(part.size for part in config.files),
        n_params=config.n_params,
        bpw=config.bits_per_weight,
        bpw_without_embeddings=config.bits_per_weight_without_embeddings,
        file_type=file_type[0] if file_type and config.file_type is not None else None,
        encoding=config.quant,
        mix={name: share.elements / config.n_params for name, share in config.mix.items()},
        load=found.load,
        speed=_speed(found.speed, _requests(found), bandwidth) if found.speed else None,
        memory=_memory(config, found.speed, found.serve) if found.speed else None,
        quality=level_quality(found.quality) if found.quality else None,
        errors=errors,
        cached=tuple(cached),
    )


def level_quality(answer: QualityAnswer) -> LevelQuality:
    """All that quality is in one."""
    return LevelQuality(
        **msgspec.structs.asdict(answer.quality), choices=answer.choices, greedy=answer.greedy
    )


def _requests(found: Answers) -> tuple[Requests, ...]:
    """What was measured over HTTP, both passes in one."""
    first = found.serve.requests if found.serve else ()
    if found.serve_again is None:
        return first
    return tuple(merged(a, b) for a, b in zip(first, found.serve_again.requests, strict=True))


def _speed(answer: SpeedAnswer, http: tuple[Requests, ...], bandwidth: Bandwidth) -> Speed:
    def bare(kind: str) -> tuple[float, float]:
        for rate in answer.bare.rates:
            if (rate.kind, rate.streams, rate.depth) == (kind, 1, 0):
                return rate.per_s.mean, rate.per_s.error
        raise AssertionError(f"{kind} was not measured")

    prefill, decode = bare("prefill"), bare("decode")
    served = http[0].per_s if http else None
    per_s = answer.read_per_token * decode[0]
    share, note = per_s / bandwidth.per_s.mean, None
    if answer.is_offloaded:
        share, note = None, "layers are on a device, whose memory was not measured"
    elif answer.read_per_token < 2 * bandwidth.cache_bytes:
        share, note = None, "the weights fit into the processor's caches, mostly or wholly"
    return Speed(
        prefill_tokens_per_s=prefill[0],
        prefill_error=prefill[1],
        decode_tokens_per_s=decode[0],
        decode_error=decode[1],
        served_tokens_per_s=served.mean if served else None,
        served_error=served.error if served else None,
        rates=answer.bare.rates,
        bare_requests=answer.bare.requests,
        http_requests=http,
        threads=answer.threads,
        threads_batch=answer.threads_batch,
        read_per_token=answer.read_per_token,
        gb_per_s=per_s / 1e9,
        bandwidth_share=share,
        bandwidth_note=note,
    )


def _memory(config: ModelConfig, answer: SpeedAnswer, serve: ServeAnswer | None) -> Memory:
    own = answer.memory
    server = serve.memory if serve else None
    return Memory(
        peak_rss=own.peak_rss if own else None,
        pss=own.pss if own else None,
        server_peak_rss=server.peak_rss if server else None,
        server_pss=server.pss if server else None,
        device_bytes=answer.buffers.device_bytes,
        buffers=answer.buffers,
        kv_bytes_per_token=answer.needs.kv_bytes_per_token,
        context=answer.needs.context,
        streams=answer.needs.streams,
        planned_bytes=answer.needs.planned_bytes,
        max_context=answer.needs.max_context,
        trained_context=config.context,
    )
