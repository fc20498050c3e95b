"""Reports that were never measured: a plain one, and what a test changes in it."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from worker.bench.bandwidth import Bandwidth
from worker.bench.choices import Choices
from worker.bench.corpus import Corpus
from worker.bench.fingerprint import Build, Machine
from worker.bench.greedy import Greedy
from worker.bench.loading import Loading
from worker.bench.memory import Buffers
from worker.bench.plan import EFFORTS
from worker.bench.results import FORMAT, LevelQuality, LevelReport, Memory, Report, Speed
from worker.bench.speed import Rate, Requests
from worker.bench.statistics import figure, latency
from worker.bench.verdict import judge

WINDOWS = 10

S = TypeVar("S", bound=msgspec.Struct)


def quality(kld: float, spread: float = 0.05) -> LevelQuality:
    """Windows around `kld`, each off by up to `spread` of it, the same pattern for every level."""
    pattern = [1 + spread * ((i * 7) % WINDOWS - (WINDOWS - 1) / 2) / WINDOWS * 2
               for i in range(WINDOWS)]  # fmt: skip
    error = kld * spread / WINDOWS**0.5
    return LevelQuality(
        tokens=2550, windows=WINDOWS, window=512,
        ppl=2.1 + kld, ppl_error=0.02, ppl_reference=2.1,
        ln_ppl_ratio=kld / 2, ln_ppl_ratio_error=error,
        kld_mean=kld, kld_mean_error=error, kld_mean_error_windows=error, kld_sampling_error=0.0,
        kld_median=kld / 2, kld_p90=kld * 2, kld_p95=kld * 3, kld_p99=kld * 5, kld_p999=kld * 9,
        kld_max=kld * 20, same_top=1 - kld, same_top_error=0.001,
        dp_mean=-kld / 10, dp_mean_error=error, dp_rms=kld, dp_rms_error=error,
        window_kld=tuple(kld * factor for factor in pattern),
        window_nll=tuple(0.74 + kld * factor for factor in pattern),
        choices=Choices(questions=100, accuracy=0.8, accuracy_error=0.04, accuracy_reference=0.8,
                        flips=min(1.0, kld), flips_error=0.01, changed=min(1.0, kld)),
        greedy=Greedy(prompts=2, tokens=8, identical=1, first_difference=(3, None),
                      median_first_difference=5.5),
    )  # fmt: skip


def speed(per_s: float, passes: tuple[float, float] | None = None) -> Speed:
    """`per_s` everywhere, spread by 1 %; over HTTP the mean of the passes."""
    first, second = passes or (per_s * 0.995, per_s * 1.005)

    def rate(kind: str, streams: int, depth: int) -> Rate:
        values = [per_s * streams * share for share in (0.99, 1.0, 1.01)]
        return Rate(kind=kind, streams=streams, depth=depth, tokens=16, per_s=figure(values))

    def requests(streams: int) -> Requests:
        return Requests(
            streams=streams, prompt=64, tokens=16, ttft=latency([0.01, 0.02]),
            itl=latency([1 / per_s] * 120), per_s=figure([first, first, second, second]),
            passes=(first, second),
        )  # fmt: skip

    mean = (first + second) / 2
    return Speed(
        prefill_tokens_per_s=per_s * 10, prefill_error=1.0, decode_tokens_per_s=per_s,
        decode_error=1.0, served_tokens_per_s=mean, served_error=1.0,
        rates=(rate("prefill", 1, 0), rate("decode", 1, 0), rate("decode", 4, 0)),
        bare_requests=(requests(1),), http_requests=(requests(1), requests(4)),
        threads=2, threads_batch=2, read_per_token=10**9, gb_per_s=per_s, bandwidth_share=0.5,
        bandwidth_note=None,
    )  # fmt: skip


def level(
    quant: str, size: int, per_s: float, kld: float | None, *, reference: bool = False
) -> LevelReport:
    """A level that was measured; without `kld` it was not scored."""
    found = None if kld is None else quality(kld)
    buffers = Buffers(weights={"CPU": size}, kv={"CPU": 1000}, compute={}, device_bytes=0)
    return LevelReport(
        quant=quant, is_reference=reference, file=f"/models/{quant}.gguf", sha256="ab" * 32,
        size_bytes=size, n_params=size, bpw=8.0, bpw_without_embeddings=7.5, file_type=quant,
        encoding=quant, mix={quant: 1.0},
        load=Loading(cold=figure([1.0, 1.1]), dropped=1.0, warm=figure([0.5, 0.52])),
        speed=speed(per_s),
        memory=Memory(
            peak_rss=size * 2, pss=size, server_peak_rss=size * 3, server_pss=size * 2,
            device_bytes=0, buffers=buffers, kv_bytes_per_token=1000, context=2048, streams=4,
            planned_bytes=size * 2, max_context=100_000, trained_context=32_768,
        ),
        quality=found, errors={}, cached=(),
    )  # fmt: skip


def report(levels: list[LevelReport], *, model: str = "A model", max_kld: float = 0.05) -> Report:
    """A report over these levels, judged."""
    bandwidth = Bandwidth(threads=2, nbytes=1, per_s=figure([1e10, 1.1e10]), cache_bytes=1 << 25)
    return Report(
        format=FORMAT, created="2026-01-01T00:00:00+00:00", model=model,
        reference=levels[0].quant, effort="quick", streams=4, max_kld=max_kld,
        levels=tuple(levels), noise_floor=None, verdict=judge(levels, max_kld),
        corpus=Corpus(name="text.txt", path="text.txt", sha256="cd" * 32, nbytes=1000),
        corpus_tokens=300, questions="general", reference_rows=(1000, 64),
        sizes=EFFORTS["quick"][0], seed=7,
        machine=Machine(system="Linux", cpu="A processor", cpus=2, memory_bytes=1 << 34,
                        bandwidth=bandwidth, devices=()),
        build=Build(worker="0", python="3.11", bindings="0.3.36", backends=("CPU",),
                    system_info=""),
        notes=(),
    )  # fmt: skip


def replaced(found: S, **changes: object) -> S:
    """A part of a report with other fields."""
    return msgspec.structs.replace(found, **changes)
