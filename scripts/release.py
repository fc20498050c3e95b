"""A release in one folder: the source beside the wheels, an SBOM of all that they install, and
checksums. Run by `make release` with the Python of .venv-wheel, once the wheels are there."""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from scripts.install.commands import CONSTRAINTS, ROOT, run
from scripts.install.portable import EPOCH
from scripts.install.talk import InstallError, say

SUMS, SBOM = "SHA256SUMS", "sbom.cdx.json"
# In the README beside each file that comes from npm.
VENDORED = re.compile(r"npm package ([\w@/.-]+) (\d[\w.-]*),")
_LLAMA_CPP = re.compile(r"set\(LLAMA_(VERSION|BUILD_COMMIT) +(\S+)\)")
Component = dict[str, Any]


def make_source(folder: Path, log: Path) -> Path:
    """Write the source distribution into the folder. The same tree gives the same bytes."""
    with tempfile.TemporaryDirectory("", "new-", folder) as made:
        command = [sys.executable, "-m", "build", "--sdist", "--outdir", made, str(ROOT)]
        run("Packing the source", command, log, SOURCE_DATE_EPOCH=EPOCH)
        (archive,) = Path(made).glob("*.tar.gz")
        for old in folder.glob("gguf_worker-*.tar.gz"):
            old.unlink()
        return archive.rename(folder / archive.name)


def packages_of(wheels: list[Path], tools: Path, log: Path) -> tuple[dict[str, Any], Path]:
    """Install the wheels where nothing else is, and return what is there then: a CycloneDX
    document and the folder of the packages. Raises InstallError."""
    place = ROOT / ".venv-release"
    python = str(place / "bin" / "python")
    run("Making an environment", [str(tools / "uv"), "venv", "--clear", str(place)], log)
    install = [str(tools / "uv"), "pip", "install", "--python", python]
    run("Installing", [*install, "--constraint", str(CONSTRAINTS), *map(str, wheels)], log)
    command = [str(tools / "cyclonedx-py"), "environment", python, "--output-reproducible"]
    command += ["--pyproject", str(ROOT / "pyproject.toml"), "--output-format", "JSON"]
    document = json.loads(subprocess.check_output(command))  # noqa: S603  (the command is ours)
    (packages,) = place.glob("lib/python*/site-packages")
    return document, packages


def vendored_parts(packages: Path) -> dict[str, list[Component]]:
    """Package -> what it holds that no index has told: llama.cpp, libraries that auditwheel copied
    into the wheel, and scripts from npm."""
    (config,) = packages.glob("llama_cpp/lib/cmake/llama/llama-config.cmake")
    facts = dict(_LLAMA_CPP.findall(config.read_text()))
    version = f"{facts['VERSION']}+{facts['BUILD_COMMIT']}"
    native = [_component("llama.cpp", version, f"pkg:github/ggml-org/llama.cpp@{version}")]
    for file in sorted(packages.glob("llama_cpp_python-*.dist-info/sboms/*.json")):
        native += [
            each for each in json.loads(file.read_text())["components"]
            if not each.get("purl", "").startswith("pkg:pypi/")
        ]  # fmt: skip
    scripts = [
        _component(name, version, f"pkg:npm/{name}@{version}")
        for readme in sorted(packages.glob("worker/**/README.md"))
        for name, version in VENDORED.findall(readme.read_text())
    ]
    return {"llama-cpp-python": native, "gguf-worker": scripts}


def _component(name: str, version: str, purl: str) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def add_vendored(document: dict[str, Any], held: dict[str, list[Component]], version: str) -> None:
    """Put them into the document, each below the package that holds it."""
    root = document["metadata"]["component"]
    root["version"] = version
    refs = {
        each["name"].replace("_", "-"): each["bom-ref"] for each in [*document["components"], root]
    }
    edges = {edge["ref"]: edge for edge in document["dependencies"]}
    for package, components in held.items():
        document["components"] += components
        below = [each["bom-ref"] for each in components]
        edge = edges[refs[package]]
        edge["dependsOn"] = sorted({*edge.get("dependsOn", []), *below})
        document["dependencies"] += [{"ref": ref} for ref in below if ref not in edges]


def checksums(files: list[Path]) -> str:
    """Lines as `sha256sum --check` reads them."""
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))


def project_version() -> str:
    """Return the version, from where hatch takes it."""
    place = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"]
    found = re.search(r'__version__ = "([^"]+)"', (ROOT / place["path"]).read_text())
    assert found
    return found[1]


def make_release(folder: Path, tools: Path) -> None:
    """Write what is missing beside the wheels. Raises InstallError."""
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 2:
        raise InstallError(f"{folder} must hold the two wheels of `make wheel` and no other.")
    log = ROOT / ".venv-wheel" / "release.log"
    source = make_source(folder, log)
    document, packages = packages_of(wheels, tools, log)
    add_vendored(document, vendored_parts(packages), project_version())
    sbom = folder / SBOM
    sbom.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
    files = [*wheels, source, sbom]
    (folder / SUMS).write_text(checksums(files))
    for file in [*files, folder / SUMS]:
        say(f"{file} ({file.stat().st_size / 2**20:.1f} MiB)")


def main() -> int:
    """Return the exit code: 0, or 1 after an error."""
    parser = argparse.ArgumentParser("python -m scripts.release", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the two wheels are")
    parser.add_argument("--tools", type=Path, required=True, help="where uv and cyclonedx-py are")
    args = parser.parse_args()
    try:
        make_release(args.folder, args.tools)
    except (InstallError, OSError, subprocess.CalledProcessError) as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
