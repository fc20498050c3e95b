"""What `make release` writes: its parts, and all of it if GGUF_WORKER_WHEELS names its folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from scripts import release
from scripts.install.commands import ROOT

FOLDER = Path(os.environ.get("GGUF_WORKER_WHEELS") or "/nowhere")
released = pytest.mark.skipif(
    not (FOLDER / release.SUMS).exists(),
    reason="GGUF_WORKER_WHEELS names no folder that `make release` wrote",
)


def names_of(document: dict[str, Any]) -> set[str]:
    """The names of its components, as an index writes them."""
    return {each["name"].replace("_", "-") for each in document["components"]}


def below(document: dict[str, Any], name: str) -> set[str]:
    """The references that this component or the project itself depends on."""
    every = [*document["components"], document["metadata"]["component"]]
    (ref,) = (each["bom-ref"] for each in every if each["name"].replace("_", "-") == name)
    (edge,) = (each for each in document["dependencies"] if each["ref"] == ref)
    return set(edge["dependsOn"])


@pytest.fixture(scope="module")
def packer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the tools of `make release`."""
    place = tmp_path_factory.mktemp("tools")
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    python = place / "bin" / "python"
    tools = ROOT / "scripts" / "wheel" / "tools.txt"
    install = [python, "-m", "pip", "install", "--quiet", "--requirement", tools]
    subprocess.run(install, check=True, timeout=300)
    return python


def test_the_source_is_the_checkout(packer: Path, tmp_path: Path) -> None:
    """It has each file that git knows and no other, and the same bytes each time."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    made: list[Path] = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        code = "import sys; from pathlib import Path; from scripts.release import make_source\n"
        code += "make_source(Path(sys.argv[1]), Path(sys.argv[1]) / 'log')"
        command = [packer, "-c", code, tmp_path / name]
        subprocess.run(command, check=True, cwd=ROOT, timeout=300)
        made += (tmp_path / name).glob("*.tar.gz")
    assert made[0].name == f"gguf_worker-{release.project_version()}.tar.gz"
    assert made[0].read_bytes() == made[1].read_bytes()
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    known = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    with tarfile.open(made[0]) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in known.splitlines() if (ROOT / name).exists()} == packed - {"PKG-INFO"}


def test_parts_that_no_index_has_told(tmp_path: Path) -> None:
    """llama.cpp, what auditwheel copied and scripts from npm stand below the package that holds
    them; what auditwheel says of the wheel itself stands there already."""
    config = tmp_path / "llama_cpp/lib/cmake/llama/llama-config.cmake"
    sbom = tmp_path / "llama_cpp_python-1.dist-info/sboms/auditwheel.cdx.json"
    readme = tmp_path / "worker/page/vendor/README.md"
    for file in (config, sbom, readme):
        file.parent.mkdir(parents=True)
    config.write_text("set(LLAMA_VERSION      0.5.0)\nset(LLAMA_BUILD_COMMIT abc)\n")
    readme.write_text("`a.js` is `lib/a.js` of the npm package a-dist 1.2.3, unchanged.")
    gomp = {"name": "libgomp", "bom-ref": "gomp", "purl": "pkg:rpm/libgomp@1"}
    itself = {"name": "llama_cpp_python", "bom-ref": "it", "purl": "pkg:pypi/llama_cpp_python@1"}
    sbom.write_text(json.dumps({"components": [itself, gomp]}))
    document: dict[str, Any] = {
        "metadata": {"component": {"name": "gguf-worker", "bom-ref": "root"}},
        "components": [{"name": "llama_cpp_python", "bom-ref": "bindings"}],
        "dependencies": [{"ref": "root", "dependsOn": ["bindings"]}, {"ref": "bindings"}],
    }
    release.add_vendored(document, release.vendored_parts(tmp_path), "3.1")
    assert document["metadata"]["component"]["version"] == "3.1"
    assert names_of(document) == {"llama-cpp-python", "llama.cpp", "libgomp", "a-dist"}
    assert below(document, "gguf-worker") == {"bindings", "pkg:npm/a-dist@1.2.3"}
    llama_cpp = "pkg:github/ggml-org/llama.cpp@0.5.0+abc"
    assert below(document, "llama-cpp-python") == {llama_cpp, "gomp"}


def test_every_vendored_script_is_found() -> None:
    """Each README beside a script from npm is written so that its version is read."""
    scripts = list((ROOT / "worker").rglob("*.LICENSE"))
    for folder in {each.parent for each in scripts}:
        assert release.VENDORED.findall((folder / "README.md").read_text()), folder
    assert scripts


def test_checksums(tmp_path: Path) -> None:
    """`sha256sum --check` reads them, and finds a file that has changed."""
    files = [tmp_path / "b", tmp_path / "a"]
    for file in files:
        file.write_text(file.name)
    (tmp_path / release.SUMS).write_text(release.checksums(files))
    check = ["sha256sum", "--check", "--strict", release.SUMS]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "a: OK\nb: OK\n")
    files[0].write_text("other")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 1


@released
def test_the_release_is_whole() -> None:
    """Two wheels, the source and the SBOM have their checksums, and nothing else has one."""
    check = ["sha256sum", "--check", "--strict", release.SUMS]
    done = subprocess.run(check, cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    names = {line.removesuffix(": OK") for line in done.stdout.splitlines()}
    stem = f"gguf_worker-{release.project_version()}"
    ours = {f"{stem}-py3-none-any.whl", f"{stem}.tar.gz", release.SBOM}
    assert ours < names
    (library,) = names - ours
    assert re.fullmatch(r"llama_cpp_python-.+-py3-none-manylinux_\w+\.whl", library)


@released
def test_the_sbom_has_what_is_installed() -> None:
    """The worker's packages, llama.cpp, libgomp and the page's scripts, without tools of tests."""
    document = json.loads((FOLDER / release.SBOM).read_text())
    assert (document["bomFormat"], document["metadata"]["component"]["name"]) == (
        "CycloneDX",
        "gguf-worker",
    )
    names = names_of(document)
    assert {"llama-cpp-python", "llama.cpp", "litestar", "numpy", "marked"} <= names
    assert "swagger-ui-dist" in names
    assert any("gomp" in name for name in names)
    assert not names & {"pytest", "ruff", "pip", "diskcache", "auditwheel"}
    refs = {each["bom-ref"] for each in document["components"]}
    assert all(set(each.get("dependsOn", [])) <= refs for each in document["dependencies"])
