"""What the report says of attention at depth."""

from __future__ import annotations

from tests.bench.report.reports import level, replaced, report
from worker.bench.figures import figure
from worker.bench.report import BenchReport
from worker.bench.report.attention import HEADINGS, attention_rows, attention_words
from worker.bench.report.documents import markdown
from worker.bench.sections import AttentionWay, Depths, Rate


def way(flash: str, cache: str, nbytes: int, **rates: tuple[float, float]) -> AttentionWay:
    """A way with (read, written) tokens a second at depths `d0`, `d4096`."""
    found = [
        Rate(kind=kind, streams=1, depth=int(name[1:]), tokens=8, per_s=figure([per_s]))
        for name, both in rates.items()
        for kind, per_s in zip(("prefill", "decode"), both, strict=True)
    ]
    return AttentionWay(
        flash_attn=flash, cache_type_k=cache, cache_type_v=cache, kv_bytes_per_token=nbytes,
        rates=tuple(found),
    )  # fmt: skip


def made(*ways: AttentionWay) -> BenchReport:
    """A report with these ways."""
    one = level("Q8_0", 10**9, 10.0, None, reference=True)
    return report([replaced(one, depth=Depths(ways=ways))])


ON = way("on", "f16", 1000, d0=(100.0, 20.0), d4096=(50.0, 10.0))


def test_the_way_that_is_really_faster_is_named() -> None:
    """By the deepest depth that both have; a small difference changes nothing."""
    for speeds, said in (((80.0, 10.0), "off"), ((20.0, 9.0), "on"), ((51.0, 10.0), "Keep")):
        (line,) = attention_words(made(ON, way("off", "f16", 1000, d0=(1.0, 1.0), d4096=speeds)))
        assert said in line.split(":")[0]
        assert "4,096" in line
    (line,) = attention_words(made(ON, way("off", "f16", 1000, d0=(200.0, 40.0))))
    assert "after 0 tokens it reads at 2.00" in line


def test_a_quantised_cache_costs_and_saves() -> None:
    """What it costs at depth and what it saves, with the options to write."""
    (line,) = attention_words(made(ON, way("on", "q8_0", 530, d4096=(12.5, 9.0))))
    assert "-ctk q8_0 -ctv q8_0 only where the cache would not fit" in line
    assert "reads at 0.25 and writes at 0.90" in line
    assert "47% smaller" in line


def test_what_was_not_measured_is_told() -> None:
    """A way that this model has no kernel for costs no other way."""
    failed = replaced(way("on", "q8_0", 0), error="No such heads.")
    found = made(ON, failed)
    assert attention_words(found) == ["flash on, q8_0 was not measured: No such heads."]
    assert len(attention_rows(found)) == 2
    assert all(len(row) == len(HEADINGS) for row in attention_rows(found))
    assert "| flash on, f16 | 4,096 |" in markdown(found)
    plain = report([level("Q8_0", 10**9, 10.0, None, reference=True)])
    assert attention_rows(plain) == attention_words(plain) == []
