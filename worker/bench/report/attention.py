"""Attention at depth: the rows of its table, and what to take, in sentences."""

from __future__ import annotations

import math

from worker.bench.figures import Figure, per_s
from worker.bench.report import BenchReport
from worker.bench.sections import AttentionWay, Depths
from worker.machine import human_bytes

HEADINGS = ("attention", "tokens before", "read, tokens/s", "write, ms/token", "KV/token",
            "compute")  # fmt: skip
# Differences below these are not worth an option.
_MATERIAL = 1.05
_SLOW = 0.8
_NONE = "–"


def attention_rows(report: BenchReport) -> list[tuple[str, ...]]:
    """The cells below `HEADINGS`, a row for each way and depth; none where nothing was measured."""
    return [
        (_name(way), f"{depth:,}", _read(way, depth), _write(way, depth),
         human_bytes(way.kv_bytes_per_token), human_bytes(way.compute_bytes))
        for way in _ways(report)
        for depth in _depths(way)
    ]  # fmt: skip


def attention_words(report: BenchReport) -> list[str]:
    """Which --flash-attn and which cache types are best here, and what q8_0 costs and saves."""
    ways = _ways(report)
    lines = [f"{_name(way)} was not measured: {way.error}" for way in ways if way.error]
    if not ways or not ways[0].rates:
        return lines
    on, *others = (way for way in ways if way.rates)
    for way in others:
        depth = max(set(_depths(on)) & set(_depths(way)), default=0)
        read, write = (_ratio(way, on, kind, depth) for kind in ("prefill", "decode"))
        beside = (
            f"after {depth:,} tokens it reads at {read:.2f} and writes at {write:.2f} times the "
            "speed of flash attention from f16"
        )
        if way.flash_attn == "off":
            lines.append(f"{_take(read, write)}: with it off, {beside}.")
            continue
        saved = 1 - way.kv_bytes_per_token / max(on.kv_bytes_per_token, 1)
        options = f"-ctk {way.cache_type_k} -ctv {way.cache_type_v}"
        advice = "only where the cache would not fit" if min(read, write) < _SLOW else "if you like"
        lines.append(
            f"Take {options} {advice}: {beside}, and its cache is {saved:.0%} smaller "
            f"({human_bytes(way.kv_bytes_per_token)} instead of "
            f"{human_bytes(on.kv_bytes_per_token)} a token)."
        )
    return lines


def _take(read: float, write: float) -> str:
    """By both together: half of a conversation's time is reading, about."""
    both = math.sqrt(read * write)
    if both > _MATERIAL:
        return "Take --flash-attn off for long contexts, or auto, which goes over to it"
    return "Take --flash-attn on" if both < 1 / _MATERIAL else "Keep --flash-attn on or auto"


def _ratio(way: AttentionWay, beside: AttentionWay, kind: str, depth: int) -> float:
    ours, theirs = way.rate(kind, depth), beside.rate(kind, depth)
    return ours.mean / theirs.mean if ours and theirs else 1.0


def _ways(report: BenchReport) -> tuple[AttentionWay, ...]:
    found: list[Depths] = [level.depth for level in report.levels if level.depth]
    return found[0].ways if found else ()


def _depths(way: AttentionWay) -> list[int]:
    return sorted({rate.depth for rate in way.rates})


def _name(way: AttentionWay) -> str:
    types = {way.cache_type_k, way.cache_type_v}
    cache = way.cache_type_k if len(types) == 1 else f"{way.cache_type_k}/{way.cache_type_v}"
    return f"flash {way.flash_attn}, {cache}"


def _read(way: AttentionWay, depth: int) -> str:
    found = way.rate("prefill", depth)
    return per_s(found) if found else _NONE


def _write(way: AttentionWay, depth: int) -> str:
    found: Figure | None = way.rate("decode", depth)
    return f"{1e3 / found.mean:.1f}" if found else _NONE
