"""Whether the installed library computes rightly on this CPU; if not, what to build it without."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from scripts.install.commands import ROOT
from scripts.install.talk import InstallError

# What is left out, in this order, and ggml's options that go with it. A later one needs the former
# ones left out too.
LEFT_OUT = {
    "AMX": ("AMX_TILE", "AMX_INT8", "AMX_BF16"),
    "AVX-512": ("AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16"),
    "AVX2": ("AVX2", "AVX_VNNI", "FMA", "BMI2"),
}
# ggml's option -> what a CPU has that it is for, as Linux names it.
OPTIONS = {
    "SSE42": {"sse4_2"},
    "AVX": {"avx"},
    "F16C": {"f16c"},
    "AVX2": {"avx2"},
    "FMA": {"fma"},
    "BMI2": {"bmi2"},
    "AVX_VNNI": {"avx_vnni"},
    "AVX512": {"avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"},
    "AVX512_VBMI": {"avx512vbmi"},
    "AVX512_VNNI": {"avx512_vnni"},
    "AVX512_BF16": {"avx512_bf16"},
    "AMX_TILE": {"amx_tile"},
    "AMX_INT8": {"amx_int8"},
    "AMX_BF16": {"amx_bf16"},
}


def options_without(without: list[str], cpu: str) -> list[str]:
    """CMake's options for all that the CPU has but these; `cpu` are its features."""
    has = set(cpu.split())
    gone = {option for name in without for option in LEFT_OUT[name]}
    return [
        "-DGGML_NATIVE=OFF",
        *(
            f"-DGGML_{option}={'ON' if needed <= has and option not in gone else 'OFF'}"
            for option, needed in OPTIONS.items()
        ),
    ]


@dataclass(frozen=True)
class Finding:
    """What the worker's proof found: under which key it is kept, what is wrong ("": nothing), the
    CPU's features that the library uses, and whether it ended before a kernel used any."""

    key: str
    problem: str
    features: list[str]
    at_load: bool


def is_kept(environment: Path, key: str) -> bool:
    """Whether the environment has the proof still; the worker removes it when llama.cpp died."""
    return (environment / "share" / "gguf-worker" / "proofs" / f"{key}.json").exists()


def prove(python: Path) -> Finding:
    """Raises InstallError where it could not be proven."""
    done = subprocess.run(  # noqa: S603  (our own module)
        [python, "-m", "worker.llama.proof", "--json"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    try:
        said = json.loads(done.stdout)
        found = said["found"]
        return Finding(said["key"], found["problem"], found["features"], found["at_load"])
    except (ValueError, KeyError):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise InstallError(f"the self-test of llama.cpp could not run: {last}") from None


def next_without(without: list[str], features: list[str], cpu: str) -> list[str]:
    """What to leave out of the next build, where the last one used these features on a CPU with
    those of `cpu`; []: nothing is left that could be."""
    used = set(features)
    if not OPTIONS["AMX_TILE"] <= set(cpu.split()):  # ggml asks the system, and runs none of it
        used -= set(LEFT_OUT["AMX"])
    for name, options in LEFT_OUT.items():
        if name not in without and not used.isdisjoint(options):
            return [*without, name]
    return []
