"""`worker bench` as a user runs it: to the end, interrupted, killed, over a damaged cache."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.bench.run.processes import arguments, children, is_gone, wait_until
from tests.bench.test_command import run, tiny
from tests.support.models import ggufs
from tests.support.programs.processes import PATIENCE_S
from worker.bench.report import BenchReport
from worker.bench.report.changes import read_report
from worker.bench.report.documents import markdown
from worker.bench.run.runner import ask
from worker.bench.stages import LOAD, PROBE, SERVE, SERVE_AGAIN, SPEED, StageFrame, StageJob

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
Ask = Callable[[StageJob], Generator[StageFrame]]
RUN_S = 600.0  # for a whole run, on a busy machine
QUICK = ("--quick", "--threads", "1", "--parallel")


@contextmanager
def bench(cache: Path, *words: str) -> Generator[subprocess.Popen[str]]:
    """The command as a process with a cache of its own; gone afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", "worker", "bench", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], word: str) -> None:
    """Read stderr until a line has the word."""
    assert process.stderr is not None
    seen: list[str] = []
    for line in process.stderr:
        seen.append(line)
        if word in line:
            return
    raise AssertionError(f"no {word!r} in {seen}")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the runs of this module."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def quick(cache: Path) -> tuple[str, ...]:
    """Words for two levels of a small model, whose rows hold whole blocks."""
    path = ggufs.write_llama(
        cache / "m.gguf", encoding="F16", context=512, embedding=256, feed_forward=512
    )
    return (str(path), "--quants", "Q2_K", *QUICK, "2")


@pytest.fixture(scope="module")
def finished(cache: Path, quick: tuple[str, ...]) -> tuple[BenchReport, dict[str, Any], Path, str]:
    """A run that was interrupted, then killed, then let go on to its end: report, JSON from
    stdout, folder, stderr."""
    with bench(cache, *quick) as process:
        read_until(process, "F16: speed")  # loading is measured, and kept
        wait_until(lambda: bool(children(process.pid)))
        inside = children(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert inside
        wait_until(lambda: all(map(is_gone, inside)))
    with bench(cache, *quick) as process:
        read_until(process, "F16: serve")
        wait_until(lambda: any(b"serve" in arguments(pid) for pid in children(process.pid)))
        inside = children(process.pid)
        process.kill()
        process.wait(PATIENCE_S)
        wait_until(lambda: all(map(is_gone, inside)))
    out = cache / "report"
    with bench(cache, *quick, "--json", "--out", str(out)) as process:
        stdout, stderr = process.communicate(timeout=RUN_S)
        assert process.returncode == 0, stderr
    assert stdout.count("\n") == 1
    return read_report(out / "report.json"), json.loads(stdout), out, stderr


def test_a_run_reports_every_level(finished: tuple[BenchReport, dict[str, Any], Path, str]) -> None:
    """Size, loading, speed bare and over HTTP in two passes, memory and quality of each."""
    made, plain, out, stderr = finished
    assert [found.quant for found in made.levels] == ["F16", "Q2_K"]
    assert msgspec.convert(plain, BenchReport) == made
    assert sorted(path.suffix for path in out.iterdir()) == [".html", ".json", ".md", ".svg"]
    for found in made.levels:
        assert found.errors == {}
        assert found.load is not None
        assert found.speed is not None
        assert found.speed.memory is not None
        assert found.serve is not None
        assert found.serve.memory is not None
        assert found.quality is not None
        assert len(found.sha256) == 64
        assert {request.streams for request in found.http()} == {1, 2}
        assert all(len(request.passes) == 2 for request in found.http())
        assert {rate.kind for rate in found.speed.rates} == {"prefill", "decode"}
        assert found.serve.memory.peak_rss > found.size_bytes
        assert found.speed.memory.peak_rss > found.size_bytes
    assert "Q2_K: quantise" in stderr
    assert made.verdict.rule
    assert made.verdict.speed_noise is not None


def test_quality_is_in_the_order_that_it_must_have(
    finished: tuple[BenchReport, dict[str, Any], Path, str],
) -> None:
    """Two bits are further from the reference than it is from itself, by far. A quick run does not
    measure a noise floor."""
    made, *_ = finished
    assert made.noise_floor is None
    f16, q2 = (found.quality for found in made.levels)
    assert f16 is not None
    assert q2 is not None
    assert abs(f16.kld_mean) < 1e-6
    assert q2.kld_mean > 1e-3
    assert q2.same_top < 0.99
    assert q2.ppl_reference == pytest.approx(f16.ppl)


def test_an_interrupted_run_goes_on(
    finished: tuple[BenchReport, dict[str, Any], Path, str],
) -> None:
    """What was measured before Ctrl-C and before the kill is not measured again, and is told."""
    made, _, _, stderr = finished
    assert {"probe", "load", "speed"} <= set(made.levels[0].cached)
    assert "F16: load" not in stderr
    assert "F16: speed" not in stderr
    assert "F16: serve" in stderr


def test_a_complete_run_is_not_taken_for_the_next_one(
    cache: Path, quick: tuple[str, ...], finished: tuple[BenchReport, dict[str, Any], Path, str]
) -> None:
    """Timings are taken anew; quality, which does not change, and files are kept."""
    kept = cache / "gguf-worker" / "bench"
    with bench(cache, *quick) as process:
        read_until(process, "F16: load")
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    assert len(list(kept.glob("quants/*/*-Q2_K.gguf"))) == 1
    assert len(list(kept.glob("references/*"))) == 1
    assert finished[0].levels[1].file == str(next(kept.glob("quants/*/*")))


def test_a_second_run_waits_for_the_first(cache: Path, quick: tuple[str, ...]) -> None:
    """They would disturb each other's timings."""
    with bench(cache, *quick, "--fresh") as first:
        read_until(first, "machine")
        with bench(cache, *quick) as second:
            _, stderr = second.communicate(timeout=PATIENCE_S)
            assert second.returncode == 2
            assert stderr.startswith("error: BUSY: ")
        first.send_signal(signal.SIGINT)
        first.wait(PATIENCE_S)


def test_a_reference_that_fails_gives_way_to_the_next_level(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    timed_once: Ask,
) -> None:
    """Its failure is in the report, and so are the others."""
    broken = tiny(tmp_path, "F16")
    paths = [str(broken), *(str(tiny(tmp_path, name)) for name in ("Q8_0", "Q4_0"))]
    monkeypatch.setattr(
        "worker.bench.run.runner.ask", ask_without_probe_of(str(broken), timed_once)
    )
    words = (*QUICK, "1", "--no-quality", "--json")
    code, stdout, stderr = run(capsys, monkeypatch, tmp_path, *paths, *words)
    assert code == 0, stderr
    made = msgspec.json.decode(stdout, type=BenchReport)
    assert made.reference == "Q8_0"
    assert [found.quant for found in made.levels] == ["Q8_0", "Q4_0"]
    (note,) = made.notes
    assert note.startswith("F16 is left out, and Q8_0 is the reference instead: ")
    assert note in markdown(made).replace("\\_", "_")


@pytest.fixture
def timed_once(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Children that answer, but what is timed is timed at the first level and said of all."""
    known: dict[str, list[StageFrame]] = {}

    def answer(job: StageJob) -> Generator[StageFrame]:
        if job.stage not in {stage.name for stage in (LOAD, SPEED, SERVE, SERVE_AGAIN)}:
            yield from ask(job)
        elif job.stage in known:
            yield from known[job.stage]
        else:
            known[job.stage] = list(ask(job))
            yield from known[job.stage]

    monkeypatch.setattr("worker.bench.run.runner.ask", answer)
    return answer


def ask_without_probe_of(path: str, ask: Ask) -> Ask:
    """Children that answer, but for the first job of a level with this file."""

    def answer(job: StageJob) -> Generator[StageFrame]:
        if job.stage == PROBE.name and job.path == path:
            job = msgspec.structs.replace(job, path=f"{path}.gone")
        return ask(job)

    return answer


def test_what_was_measured_outlives_a_reader_that_left(tmp_path: Path) -> None:
    """As in `worker bench | head -1`: the same command has the report without measuring.

    A quantised file alone has speed and memory, but no quality, and is not recommended.
    """
    words = (str(tiny(tmp_path, "Q8_0")), *QUICK, "1")
    with bench(tmp_path, *words) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.wait(RUN_S)
    with bench(tmp_path, *words, "--json") as process:
        stdout, stderr = process.communicate(timeout=RUN_S)
    assert process.returncode == 0, stderr
    assert "speed" not in stderr
    made = msgspec.json.decode(stdout, type=BenchReport)
    (found,) = made.levels
    assert {"load", "speed", "serve", "serve again"} <= set(found.cached)
    assert found.errors == {}
    assert found.speed is not None
    assert found.quality is None
    assert made.verdict.recommended is None
    assert made.noise_floor is None


def test_damage_in_the_cache_is_made_good(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    timed_once: Ask,
) -> None:
    """A file whose weights were changed, one that is none, rows that end early."""
    words = (str(tiny(tmp_path, "F16")), "--quants", "Q8_0,Q4_0", *QUICK, "1",
             "--json")  # fmt: skip
    code, stdout, stderr = run(capsys, monkeypatch, tmp_path, *words)
    assert code == 0, stderr
    first = msgspec.json.decode(stdout, type=BenchReport)
    kept = tmp_path / "gguf-worker" / "bench"
    (eight,), (four,) = kept.glob("quants/*/*-Q8_0.gguf"), kept.glob("quants/*/*-Q4_0.gguf")
    raw = bytearray(eight.read_bytes())
    raw[-100] ^= 0x55
    eight.write_bytes(raw)
    four.write_bytes(b"garbage")
    rows = next(kept.glob("references/*/000000.npz"))
    rows.write_bytes(rows.read_bytes()[:-50])
    partial = rows.parent.with_name(f"{rows.parent.name}.partial")
    partial.write_bytes(b"garbage where a folder belongs")
    code, stdout, stderr = run(capsys, monkeypatch, tmp_path, *words)
    assert code == 0, stderr
    again = msgspec.json.decode(stdout, type=BenchReport)
    assert "Q8_0: quantise" in stderr
    assert "Q4_0: quantise" in stderr
    assert "F16: quality" in stderr
    assert [found.errors for found in again.levels] == [{}, {}, {}]
    assert [found.sha256 for found in again.levels] == [found.sha256 for found in first.levels]
    assert [found.quality for found in again.levels] == [found.quality for found in first.levels]
