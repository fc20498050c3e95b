"""The installer's parts: what it reads from output, how it chooses, what it remembers."""

from __future__ import annotations

import errno
import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from scripts.install import build, environment, talk
from scripts.install.build import Library
from scripts.install.environment import Record, goal_of
from scripts.install.proof import next_without
from scripts.install.talk import ADVICE, InstallError, activity, advice, progress
from tests.support.programs.processes import until


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("  [ 8/83] /usr/bin/c++ -O3 -o a/CMakeFiles/x.dir/ggml-quants.c.o -c ggml-quants.c",
         "[8/83]   9%  compiled ggml-quants.c"),
        ("[83/83] : && /usr/bin/c++ -shared -o libllama.so && :", "[83/83] 100%"),
        ("  Installing build dependencies: started", "fetching the build tools"),
        ("  *** Configuring CMake...", "configuring"),
        ("Collecting numpy<3,>=2.0 (from gguf-worker==0.1)", "Collecting numpy"),
        ("  Downloading https://a.b/c/numpy-2.4.6.whl (16 MB)", "Downloading numpy-2.4.6.whl"),
        ("Installing collected packages: a, b", "installing packages"),
        ("WARNING: Retrying (Retry(total=4)) after connection broken",
         "no answer from the package index, trying again"),
        ("-- Detecting CXX compiler ABI info", None),
        ("", None),
    ],
)  # fmt: skip
def test_output_tells_what_goes_on(line: str, shown: str | None) -> None:
    """Steps, downloads and waits are shown; everything else is not."""
    assert activity(line) == shown


def test_progress_in_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines with the time and the latest activity; none twice, none for output without meaning."""
    monkeypatch.setattr(talk, "SECONDS", 0.001)
    said = ""

    def seen(part: str) -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return part in said

    with progress() as take:
        for step in range(1, 10):
            take(f"[{step}/9] c++ -o {step}.o")
            take("-- noise")
        until(lambda: seen("compiled 9"))
    assert not seen("noise")
    lines = [line[8:] for line in said.splitlines()]
    assert all(line.startswith("[") for line in lines if line)
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize(
    ("output", "part"),
    [
        (os.strerror(errno.ENOSPC), "disk is full"),
        ("c++: fatal error: Killed signal terminated program cc1plus", "PARALLEL_LEVEL=1"),
        ("CMake Error: CUDA Toolkit not found", "put nvcc on PATH"),
        ("Could NOT find Vulkan (missing: Vulkan_LIBRARY)", "apt-get install libvulkan-dev"),
        ("BLAS not found, please refer to ...", "apt-get install libopenblas-dev"),
        ("ERROR: No matching distribution found for cmake", "check the network"),
        ("No CMAKE_CXX_COMPILER could be found.", "apt-get install g++"),
        ("The virtual environment was not created because ensurepip is not available", "venv"),
    ],
)
def test_known_failures_have_one_sentence(output: str, part: str) -> None:
    """It names the next step and shows none of the output."""
    assert part in advice(f"much\n{output}\nmore")
    assert "\n" not in advice(output)


def test_the_table_of_advice_is_whole() -> None:
    """Every cause is a regular expression, every advice a sentence."""
    for cause, text in tomllib.loads(ADVICE.read_text()).items():
        assert re.compile(cause)
        assert text.endswith(".")


def test_unknown_failures_show_their_errors() -> None:
    """The lines with errors, or the last lines where there are none."""
    lines = [*(f"line {i}" for i in range(50)), "FAILED: x.o", "x.c:3:1: error: no such thing"]
    assert advice("\n".join(lines)) == ("It said:\n  FAILED: x.o\n  x.c:3:1: error: no such thing")
    assert advice("\n".join(lines[:50])).splitlines()[1:] == [f"  line {i}" for i in range(35, 50)]


def test_choices_stay_until_others_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing named keeps all; RPC=1 adds; a backend replaces all; extras only grow."""
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    monkeypatch.delenv(environment.WHEELS, raising=False)

    def chosen(record: Record) -> tuple[str, bool, str]:
        return record.library.backend, record.library.rpc, record.library.cmake_args

    first = goal_of(Record(), "blas", None, ["dev"])
    assert chosen(first) == ("blas", False, "")
    with_rpc = goal_of(first, None, "1", ["train"])
    assert (chosen(with_rpc), with_rpc.extras) == (("blas", True, ""), ["dev", "train"])
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_AVX512=OFF")
    own = goal_of(with_rpc, None, None, [])
    assert chosen(own) == ("blas", True, "-DGGML_AVX512=OFF")
    monkeypatch.delenv("CMAKE_ARGS")
    assert goal_of(own, None, None, []) == own
    assert chosen(goal_of(own, None, "0", [])) == ("blas", False, "-DGGML_AVX512=OFF")
    assert chosen(goal_of(own, "cpu", None, [])) == ("cpu", False, "")


def test_a_place_of_wheels_stays_until_it_is_unset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is remembered, a backend or an empty name ends it, and another file there counts anew."""
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    monkeypatch.setenv(environment.WHEELS, str(tmp_path))
    first = goal_of(Record(), None, None, [])
    assert (first.library.wheels, str(first.library)) == (
        str(tmp_path), f"llama-cpp-python {first.library.version} from {tmp_path}",
    )  # fmt: skip
    monkeypatch.delenv(environment.WHEELS)
    assert goal_of(first, None, None, []) == first
    assert goal_of(first, build.DEFAULT_BACKEND, None, []).library.wheels == ""
    (tmp_path / "one.whl").touch()
    assert goal_of(first, None, None, []).build != first.build
    monkeypatch.setenv(environment.WHEELS, "")
    assert goal_of(first, None, None, []).library.wheels == ""


@pytest.mark.parametrize(
    ("named", "asked"),
    [
        ("BACKEND=vulkan", {"backend": "vulkan"}),
        ("RPC=1", {"rpc": "1"}),
        ("LOCKED=1", {"lock": "1"}),
        ("CMAKE_ARGS", {}),
    ],
)
def test_a_wheel_is_taken_as_it_is(
    named: str, asked: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would shape a build is refused beside a place of wheels, by its name."""
    monkeypatch.setenv(environment.WHEELS, "https://example.org/wheels")
    monkeypatch.setenv("CMAKE_ARGS", "" if asked else "-DX=1")
    with pytest.raises(InstallError, match=named):
        goal_of(Record(), **{"backend": None, "rpc": None, "extra": []} | asked)  # pyright: ignore


def test_every_choice_is_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two backends, versions, options or processors share a key."""
    libraries = [Library("1", backend, rpc) for backend in build.BACKENDS for rpc in (True, False)]
    libraries += [Library("2", "cpu"), Library("1", "cpu", cmake_args="-DX=1")]
    portable = Library("1", "cpu", portable=True)
    keys = {portable.key} | {library.key for library in libraries}
    monkeypatch.setattr(build, "cpu_features", lambda: "another")
    assert len(keys | {library.key for library in libraries}) == 2 * len(libraries) + 1
    assert portable.key in keys  # it is the same on every processor


def test_what_goes_into_cmake() -> None:
    """Metal is switched off by name everywhere else; RPC only where it was asked for."""
    assert "-DGGUF_WORKER_METAL=ON" in Library("1", "metal").options
    for backend in build.BACKENDS.keys() - {"metal"}:
        assert "-DGGUF_WORKER_METAL=OFF" in Library("1", backend).options
    assert "-DGGML_RPC=ON" in Library("1", "cpu", rpc=True).options
    assert "-DGGML_RPC=OFF" in Library("1", "cpu").options
    assert "-DGGML_NATIVE=ON" in Library("1", "cpu").options
    portable = Library("1", "cpu", portable=True).options
    assert {"-DGGML_NATIVE=OFF", "-DGGML_CPU_ALL_VARIANTS=ON"} <= set(portable)


@pytest.mark.parametrize(
    ("without", "used", "cpu", "next_one"),
    [
        ([], ["AVX2", "AVX512", "AMX_INT8"], "avx2 avx512f amx_tile amx_int8", ["AMX"]),
        ([], ["AVX2", "AVX512", "AMX_INT8"], "avx2 avx512f", ["AVX-512"]),
        (["AMX"], ["AVX2", "AVX512"], "avx2 avx512f amx_tile", ["AMX", "AVX-512"]),
        ([], ["AVX2", "AVX512"], "avx2", ["AVX-512"]),
        (["AVX-512"], ["AVX2"], "avx2", ["AVX-512", "AVX2"]),
        ([], ["AMX_INT8"], "avx2", []),
        (["AVX2"], ["SSE3"], "amx_tile", []),
    ],
)  # fmt: skip
def test_what_is_left_out_next(
    without: list[str], used: list[str], cpu: str, next_one: list[str]
) -> None:
    """The first feature that the library uses; AMX only on a CPU that has it."""
    assert next_without(without, used, cpu) == next_one


def test_records_are_read_back(tmp_path: Path) -> None:
    """What was kept is read; a broken or older record is an empty one."""
    record = Record(Library("1", "blas", rpc=True), ["dev"], "base", "build", "packages")
    place = environment.Environment(tmp_path)
    assert place.record == Record()
    place.keep(record)
    assert environment.Environment(tmp_path).record == record
    for broken in ('{"library"', "[]", "{}", json.dumps({"library": {}, "clean": True})):
        place.file.write_text(broken)
        assert environment.Environment(tmp_path).record == Record()


def test_as_many_compilers_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never none; no more than one for each 1.5 GB."""
    assert 1 <= build.parallel_jobs() <= (os.cpu_count() or 1)
    monkeypatch.setattr(build, "JOB_BYTES", 2**60)
    assert build.parallel_jobs() == 1
