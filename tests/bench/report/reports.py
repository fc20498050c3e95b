"""Reports that were never measured: a plain one, and what a test changes in it."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from worker.bench.figures import figure, latency
from worker.bench.plan import Corpus
from worker.bench.report import FORMAT, BenchReport, LevelReport
from worker.bench.report.verdict import judge
from worker.bench.sections import (
    Bandwidth,
    BareSpeed,
    Buffers,
    Choices,
    Greedy,
    HttpSpeed,
    LoadTimes,
    Machine,
    MemoryNeeds,
    ProcessMemory,
    Quality,
    Rate,
    Requests,
    TokenCost,
    Versions,
)
from worker.bench.sizes import EFFORTS

WINDOWS = 10

S = TypeVar("S", bound=msgspec.Struct)


def quality(kld: float, spread: float = 0.05) -> Quality:
    """Windows around `kld`, each off by up to `spread` of it, the same pattern for every level."""
    pattern = [1 + spread * ((i * 7) % WINDOWS - (WINDOWS - 1) / 2) / WINDOWS * 2
               for i in range(WINDOWS)]  # fmt: skip
    error = kld * spread / WINDOWS**0.5
    return Quality(
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
        text_tokens=300, reference_rows=(1000, 64), threads=2, batch_rows=512,
    )  # fmt: skip


def measured(
    per_s: float, passes: tuple[float, float] | None = None, size: int = 10**9
) -> dict[str, BareSpeed | HttpSpeed]:
    """The sections of speed: `per_s` everywhere, spread by 1 %; over HTTP the two passes."""

    def rate(kind: str, streams: int) -> Rate:
        values = [per_s * streams * share for share in (0.99, 1.0, 1.01)]
        return Rate(kind=kind, streams=streams, depth=0, tokens=16, per_s=figure(values))

    def requests(streams: int, *values: float) -> Requests:
        return Requests(
            streams=streams, prompt=64, tokens=16, ttft=latency([0.01, 0.02]),
            itl=latency([1 / per_s] * 120), per_s=figure(values), passes=(values[0],),
        )  # fmt: skip

    def memory(times: int) -> ProcessMemory:
        return ProcessMemory(peak_rss=size * times, rss=size, pss=size * (times - 1))

    def serve(value: float) -> HttpSpeed:
        both = (requests(1, value, value), requests(4, value, value))
        return HttpSpeed(requests=both, memory=memory(3))

    first, second = passes or (per_s * 0.995, per_s * 1.005)
    bare = BareSpeed(
        rates=(rate("prefill", 1), rate("decode", 1), rate("decode", 4)),
        requests=(requests(1, first, first, second, second),), threads=2, threads_batch=2,
        read_per_token=10**9, memory=memory(2),
        buffers=Buffers(weights={"CPU": size}, kv={"CPU": 1000}, compute={}, device_bytes=0),
        needs=MemoryNeeds(context=2048, streams=4, planned_bytes=size * 2, kv_bytes_per_token=1000,
                    max_context=100_000, trained_context=32_768),
    )  # fmt: skip
    return {"speed": bare, "serve": serve(first), "serve_again": serve(second)}


def level(
    quant: str, size: int, per_s: float, kld: float | None, *, reference: bool = False
) -> LevelReport:
    """A level that was measured; without `kld` it was not scored."""
    plain = LevelReport(
        quant=quant, is_reference=reference, file=f"/models/{quant}.gguf", sha256="ab" * 32,
        size_bytes=size, n_params=size, bpw=8.0, bpw_without_embeddings=7.5, file_type=quant,
        encoding=quant, mix={quant: 1.0},
        load=LoadTimes(cold=figure([1.0, 1.1]), dropped=1.0, warm=figure([0.5, 0.52])),
        quality=None if kld is None else quality(kld),
    )  # fmt: skip
    return replaced(plain, **measured(per_s, size=size))


def report(
    levels: list[LevelReport], *, model: str = "A model", max_kld: float = 0.05
) -> BenchReport:
    """A report over these levels, judged."""
    bandwidth = Bandwidth(threads=2, nbytes=1, per_s=figure([1e10, 1.1e10]), cache_bytes=1 << 25)
    return BenchReport(
        format=FORMAT, created="2026-01-01T00:00:00+00:00", model=model,
        reference=levels[0].quant, effort="quick", streams=4, max_kld=max_kld,
        levels=tuple(levels), noise_floor=None, verdict=judge(levels, max_kld),
        corpus=Corpus(name="text.txt", path="text.txt", sha256="cd" * 32, nbytes=1000),
        questions="general", token_cost=TokenCost(read_s=0.001, write_s=0.01),
        sizes=EFFORTS["quick"][0], seed=7,
        machine=Machine(system="Linux", cpu="A processor", cpus=2, memory_bytes=1 << 34,
                        bandwidth=bandwidth, devices=(),
                        versions=Versions(worker="0", python="3.11", bindings="0.3.36",
                                          backends=("CPU",), system_info="")),
        notes=(),
    )  # fmt: skip


def replaced(found: S, **changes: object) -> S:
    """A part of a report with other fields."""
    return msgspec.structs.replace(found, **changes)
