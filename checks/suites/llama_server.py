"""llama-server's own unit tests over this worker, and a table of them.

They come from the sources that the build unpacks. A shim takes llama-server's place: where a test
names a model of the Hub, the worker gets one of `checks/real` or a generated one.

    python -m checks.suites.llama_server --venv .venv-suites [--sources SDIST] [-- pytest's options]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as Xml
from collections import Counter
from pathlib import Path

from checks.real.minilm import MiniLm
from checks.real.weights import GEMMA3, SMOLLM2, bring
from tests.support.models.infilling import write_infilling

TOP = Path(__file__).parents[2]
VERSION = re.compile(r"^llama-cpp-python==(\S+)", re.MULTILINE)
# What the native server passes with the same models; others assert the words of named weights.
NATIVE = 287
_HUB = "host='huggingface.co'"  # what needs it is skipped
_TESTS = "vendor/llama.cpp/tools/server/tests/"
# They bring several modules of their own along.
_NEEDS = ("aiohttp", "requests", "pytest", "filelock", "wget", "numpy", "openai~=2.14.0",
          "prometheus-client")  # fmt: skip
_SHIM = """#!{python}
import os, sys
MODELS = {models!r}
given, found = sys.argv[1:], []
while given:
    word = given.pop(0)
    if word in ("--hf-repo", "--hf-file"):
        name = given.pop(0)
        if word == "--hf-repo" and "--model" not in found:
            found += ["--model", next(path for key, path in MODELS if key in name + str(given))]
    else:
        found.append(word)
os.chdir({top!r})
os.execv({python!r}, [{python!r}, "-m", "worker", "serve", *found])
"""


def main() -> None:
    """Run them and print the table; the status is 0 where no case fails that is not explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--sources", type=Path)
    parser.add_argument("rest", nargs="*")
    options = parser.parse_args()
    folder: Path = options.venv.absolute()
    python = folder / "bin/python"
    if not python.exists():
        _run(sys.executable, "-m", "venv", str(folder))
        _run(str(python), "-m", "pip", "install", "-q", *_NEEDS)
    tests = _unpacked(options.sources or _sdist(folder), folder)
    (tests / "conftest.py").write_text(_conftest(tests))
    shim = folder / "shim"
    shim.write_text(_SHIM.format(python=sys.executable, top=str(TOP), models=_models(folder)))
    shim.chmod(0o755)
    report = folder / "report.xml"
    env = os.environ | {"LLAMA_SERVER_BIN_PATH": str(shim), "PORT": "8180"}
    subprocess.run(
        [python, "-m", "pytest", "-q", "-m", "not slow", f"--junitxml={report}", "--tb=short",
         *(options.rest or ["unit"])],
        cwd=tests, env=env, check=False,
    )  # fmt: skip
    sys.exit(_told(report))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def _sdist(folder: Path) -> Path:
    """The one that the build is made of."""
    found = VERSION.search((TOP / "constraints.txt").read_text())
    assert found is not None
    name = f"llama-cpp-python=={found[1]}"
    _run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:",
         "-d", str(folder), name)  # fmt: skip
    return next(folder.glob("llama_cpp_python-*.tar.gz"))


def _unpacked(sdist: Path, folder: Path) -> Path:
    """Where the tests lie then."""
    with tarfile.open(sdist) as archive:
        members = [each for each in archive.getmembers() if _TESTS in each.name]
        archive.extractall(folder, members, filter="data")
    return next(folder.glob(f"*/{_TESTS}"))


def _conftest(tests: Path) -> str:
    """Theirs, which downloads no models."""
    text = (tests / "conftest.py").read_text()
    return text.replace("ServerPreset.load_all()", "pass")


def _models(folder: Path) -> list[tuple[str, str]]:
    """A part of a name of theirs -> a file; the last one is for all others."""
    bring()
    minilm = str(MiniLm().write(folder / "minilm.gguf"))
    return [
        ("infill", str(write_infilling(folder))), ("bert", minilm), ("jina", minilm),
        ("gemma3", str(GEMMA3.path)), ("", str(SMOLLM2.path)),
    ]  # fmt: skip


def _accepted() -> list[tuple[str, str]]:
    """A part of a case's name, or of where it failed -> why it may."""
    lines = (Path(__file__).parent / "accepted.txt").read_text().splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return [(name, why) for name, why in pairs]


def _told(report: Path) -> int:
    """Print the table; how many cases fail without a reason."""
    counts: dict[str, Counter[str]] = {}
    reasons: Counter[str] = Counter()
    unexplained: list[str] = []
    accepted = _accepted()
    for case in Xml.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        failures = [*case.iter("failure"), *case.iter("error")]
        text = " ".join(each.text or "" for each in failures)
        row = counts.setdefault(name.partition("::")[0], Counter())
        row["cases"] += 1
        if case.find("skipped") is not None or _HUB in text:
            row["skipped"] += 1
        elif not failures:
            row["passed"] += 1
        elif why := next((why for part, why in accepted if part in name or part in text), None):
            row["accepted"] += 1
            reasons[why] += 1
        else:
            unexplained.append(name)
    kinds = ("cases", "passed", "accepted", "skipped")
    print(f"\n{'':32}" + "".join(f"{kind:>10}" for kind in kinds))
    for name, row in counts.items():
        print(f"{name:32}" + "".join(f"{row[kind]:>10}" for kind in kinds))
    total = sum(counts.values(), Counter[str]())
    print(f"{'all (native: ' + str(NATIVE) + ')':32}" + "".join(f"{total[k]:>10}" for k in kinds))
    for why, count in reasons.most_common():
        print(f"{count:>5} {why}")
    for name in unexplained:
        print(f"not explained: {name}")
    return min(len(unexplained), 1)


if __name__ == "__main__":
    main()
