"""What samples that were made up are taken for, and how they are told."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from checks.soak.__main__ import main
from checks.soak.picture import drawing
from checks.soak.report import json_of, table_of, words_of
from checks.soak.run import Soak, SoakPlan
from checks.soak.soaked import DraftSlot
from checks.soak.verdict import MB, Soaking, judged

ZEROS = dict.fromkeys(DraftSlot.__struct_fields__, 0)
PLAN = SoakPlan(["worker"], None, 120, 9, 15, 1)


def held(minutes: float, megabytes: float, **others: Any) -> DraftSlot:
    """A sample; descriptors and threads as a worker has them."""
    given = {
        "seconds": minutes * 60,
        "clients": round(minutes * 500),
        "anonymous": round(megabytes * MB),
        "descriptors": 9,
        "threads": 14,
        "cpu_s": minutes * 20,
    }
    return msgspec.convert({**ZEROS, **given, **others}, DraftSlot)


def run_of(growth: float, minutes: int = 120, wave: float = 0.5) -> list[DraftSlot]:
    """One sample a minute; growth: MB an hour; the first 30 minutes grow fast, as caches fill."""
    return [
        held(at, 100 + min(at, 30) + growth * at / 60 + wave * (at * 7 % 5 - 2))
        for at in range(minutes + 1)
    ]


def verdict_of(samples: list[DraftSlot], wrong: dict[str, int] | None = None) -> Soaking:
    """After 30 minutes, with the limit of one MB an hour."""
    return judged(samples, 1800, 1.0, 64 << 20, Counter(wrong or {}))


def test_sound() -> None:
    """Memory that stays is sound, however it grew in the warm-up."""
    verdict = verdict_of(run_of(0.0))
    assert (verdict.outcome, verdict.reasons) == ("sound", [])


def test_a_leak_of_memory() -> None:
    """Memory that grows is a leak, and the slope is its size."""
    verdict = verdict_of(run_of(3.0))
    assert verdict.outcome == "leak"
    assert verdict.slope is not None
    assert verdict.slope.middle == pytest.approx(3, abs=0.5)
    assert "memory grows by" in verdict.reasons[0]
    # 3 MB an hour at 500 clients a minute
    assert verdict.per_thousand == pytest.approx(100, abs=20)


@pytest.mark.parametrize("growth", [0.0, 3.0])
def test_too_short(growth: float) -> None:
    """Ten minutes after the warm-up neither pass a leak nor tell one that is none."""
    verdict = verdict_of(run_of(growth, 40, wave=3))
    assert (verdict.outcome, verdict.reasons) == ("short", [])
    assert verdict.slope is not None
    assert verdict.slope.least_shown > 1
    assert verdict_of(run_of(growth, 20)) == Soaking("short", None, None, [])


@pytest.mark.parametrize(
    ("name", "per_hour", "is_told"),
    [("descriptors", 60, True), ("threads", 60, True), ("temp_files", 60, True),
     ("descriptors", 1, False), ("threads", 4, False)],
)  # fmt: skip
def test_what_is_counted(name: str, per_hour: int, is_told: bool) -> None:
    """A count that grows is told; one that a pool or a heartbeat explains is not."""
    samples = [
        msgspec.structs.replace(sample, **{name: 9 + int(per_hour * sample.seconds / 3600)})
        for sample in run_of(0.0)
    ]
    verdict = verdict_of(samples)
    assert [reason.partition(":")[0] for reason in verdict.reasons] == [name] * is_told
    assert verdict.outcome == ("leak" if is_told else "sound")


@pytest.mark.parametrize("name", ["live_cells", "running", "waiting", "requests"])
def test_what_must_be_nothing(name: str) -> None:
    """Once is too much, in the warm-up too."""
    samples = run_of(0.0)
    samples[3] = msgspec.structs.replace(samples[3], **{name: 1})
    verdict = verdict_of(samples)
    assert verdict.outcome == "leak"
    assert verdict.reasons == [f"{name}: 1 while nobody asked for anything"]


def test_what_went_wrong() -> None:
    """A complaint of a client, and a folder above its limit."""
    assert verdict_of(run_of(0.0), {"good: status 500": 2}).reasons == ["2 x good: status 500"]
    samples = run_of(0.0)
    samples[9] = msgspec.structs.replace(samples[9], folder_bytes=70 << 20)
    assert verdict_of(samples).reasons == ["the cache's folder had 73.4 MB of 67.1"]


def test_a_run_is_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run wrote tells the same afterwards; the exit code says how it was."""
    svg, runs = tmp_path / "soak.svg", list[str]()
    for growth in (0.0, 3.0):
        path = tmp_path / f"{growth}.jsonl"
        runs.append(str(path))
        soak = Soak(PLAN, came=Counter({"good /chat 200": 5}), told=Counter({"500": 3}))
        with path.open("w") as out:
            for sample in run_of(growth):
                soak.samples.append(sample)
                soak.write(out)
        assert Soak.read(path) == soak
    for code, words in (
        (0, [runs[0], "--json", "--svg", str(svg)]),
        (1, [runs[1]]),
        (0, [runs[1], "--limit", "4"]),
        (3, [runs[0], "--warm-up", "119"]),
    ):
        monkeypatch.setattr("sys.argv", ["soak", "--read", *words])
        assert main() == code
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["verdict"]["outcome"] == "sound"
    assert first["came"] == {"good /chat 200": 5}
    assert "MB an hour" in svg.read_text()


def test_a_run_is_told() -> None:
    """The table has the first and the last of each; the words name the slope and the verdict."""
    soak = Soak(PLAN, run_of(3.0), Counter({"left in head": 2, "left in body": 1}))
    verdict = verdict_of(soak.samples)
    out = io.StringIO()
    Console(file=out, width=120).print(table_of(soak, 1800))
    row = next(line for line in out.getvalue().splitlines() if "anonymous" in line)
    assert row.split()[-5:] == ["99.0", "130.5", "130.5", "136.8", "135.0"]
    words = words_of(soak, verdict, 1800, 1.0)
    assert "left 3" in words[0]
    assert any(line.startswith("slope after 30 minutes: +3.") for line in words)
    assert words[-1] == "not sound"
    assert json_of(soak, verdict, 1800, 1.0)["verdict"]["outcome"] == "leak"
    assert drawing("a & b", soak.samples, 1800, verdict).count("<polyline") == 8
