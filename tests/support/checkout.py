"""A checkout whose library compiles in no time: the real installer, pip and venv, no network."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = "0.3.36"
TIMEOUT_S = 240.0  # what a very busy machine may take for a run of seconds

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
PROJECT = f"""
[project]
name = "gguf-worker"
version = "1"
dependencies = ["llama-cpp-python=={VERSION}"]
"""
# A build backend without requirements. `module.py` of the wheel holds the CMAKE_ARGS.
BACKEND = """
import os, pathlib, signal, sys, time, zipfile

NAME, VERSION, REQUIRES, MODULE = {names!r}
INFO = f"{{NAME}}-{{VERSION}}.dist-info"


def _files():
    metadata = f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: {{VERSION}}\\n"
    yield "METADATA", metadata + (f"Requires-Dist: {{REQUIRES}}\\n" if REQUIRES else "")
    yield "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"


def prepare_metadata_for_build_wheel(folder, settings=None):
    (pathlib.Path(folder) / INFO).mkdir()
    for name, text in _files():
        (pathlib.Path(folder) / INFO / name).write_text(text)
    return INFO


def build_wheel(folder, settings=None, metadata=None):
    if pathlib.Path("PKG-INFO").exists():
        print("[1/2] c++ -o one.cpp.o", flush=True)
        if hang := os.environ.get("FAKE_HANG"):
            pathlib.Path(hang).write_text(str(os.getpid()))
            time.sleep(600)
        if failure := os.environ.get("FAKE_FAILURE"):
            sys.exit(failure)
        print("[2/2] c++ -o two.cpp.o", flush=True)
    wheel = f"{{NAME}}-{{VERSION}}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder) / wheel, "w") as archive:
        archive.writestr(f"{{MODULE}}.py", f"arguments = {{os.environ.get('CMAKE_ARGS', '')!r}}")
        for name, text in _files():
            archive.writestr(f"{{INFO}}/{{name}}", text)
        archive.writestr(f"{{INFO}}/RECORD", "")
    return wheel


build_editable, prepare_metadata_for_build_editable = build_wheel, prepare_metadata_for_build_wheel
"""


# The worker's proof: a library with an option that FAKE_UNSOUND names is not sound. With LOAD it
# cannot even be loaded.
PROOF = """
import json, os, pathlib, sys
import llama_cpp

features = [f"{name}" for name in ("AMX_INT8", "AVX512", "AVX2")
            if f"-DGGML_{name}=OFF" not in llama_cpp.arguments]
bad = [name for name in features if name in os.environ.get("FAKE_UNSOUND", "")]
bad += ["its compiler"] * ("ALWAYS" in os.environ.get("FAKE_UNSOUND", ""))
problem = f"computes Q4_K with 1 row wrongly, because of {bad[0]}" if bad else ""
at_load = "LOAD" in os.environ.get("FAKE_UNSOUND", "")
if at_load:
    problem = "dies of SIGSEGV while it loads a file's metadata, before a kernel computes"
folder = pathlib.Path(sys.prefix, "share/gguf-worker/proofs")
folder.mkdir(parents=True, exist_ok=True)
(folder / "0.json").write_text(problem)
found = {"problem": problem, "features": features, "at_load": at_load}
print(json.dumps({"key": "0", "found": found}))
"""

HEADER = """
#include <stdint.h>
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif
enum llama_kind { LLAMA_KIND_A = 0, LLAMA_KIND_B = 1 };
struct llama_thing { int32_t count; bool whole; void * more; };
struct llama_thing llama_thing_default(void);
int32_t llama_use(struct llama_thing thing, float share);
#ifdef __cplusplus
}
#endif
"""
BINDINGS = """
import ctypes
from llama_cpp._ctypes_extensions import ctypes_function_for_shared_library, load_shared_library
_lib = load_shared_library("llama", None)
ctypes_function = ctypes_function_for_shared_library(_lib)
LLAMA_KIND_A = 0
LLAMA_KIND_B = 1
LLAMA_ONLY_IN_PYTHON = 7
class llama_thing(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_int32),
        ("whole", ctypes.c_bool),
        ("more", ctypes.c_void_p),
    ]
@ctypes_function("llama_thing_default", [], llama_thing)
def llama_thing_default(): ...
@ctypes_function("llama_use", [llama_thing, ctypes.c_float], ctypes.c_int32)
def llama_use(thing, share): ...
"""

# Variables that change what an installer does.
_OURS = ("PIP_", "CMAKE_", "PYTHON", "GGUF_WORKER_", "LLAMA_CPP")


class Checkout:
    """`install` runs the installer; `cache` and `packages` are what it sees of the world."""

    def __init__(self, folder: Path) -> None:
        self.root, self.cache, self.packages = (folder / name for name in ("tree", "cache", "pip"))
        for path in (self.root, self.cache, self.packages):
            path.mkdir()
        without = shutil.ignore_patterns("__pycache__", "demo_model")
        shutil.copytree(ROOT / "scripts", self.root / "scripts", ignore=without)
        (self.root / "pyproject.toml").write_text(PYPROJECT + PROJECT)
        (self.root / "constraints.txt").touch()
        (self.root / "worker").mkdir()
        (self.root / "worker/__init__.py").touch()
        (self.root / "worker/llama").mkdir()
        shutil.copy(ROOT / "worker/llama/signatures.py", self.root / "worker/llama")
        (self.root / "worker/llama/proof").mkdir(parents=True)
        (self.root / "worker/llama/proof/__main__.py").write_text(PROOF)
        own = ("gguf_worker", "1", f"llama-cpp-python=={VERSION}", "worker")
        (self.root / "backend.py").write_text(BACKEND.format(names=own))
        library = ("llama_cpp_python", VERSION, "", "llama_cpp")
        top = f"llama_cpp_python-{VERSION}"
        with tarfile.open(self.packages / f"{top}.tar.gz", "w:gz") as sdist:
            for name, text in (
                (
                    "PKG-INFO",
                    f"Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: {VERSION}\n",
                ),
                ("pyproject.toml", PYPROJECT),
                ("backend.py", BACKEND.format(names=library)),
                ("llama_cpp/__init__.py", f'__version__ = "{VERSION}"\n'),
                ("llama_cpp/llama_cpp.py", BINDINGS),
                ("vendor/llama.cpp/include/llama.h", HEADER),
                ("vendor/llama.cpp/models/templates/one.jinja", "{{ messages }}"),
                ("vendor/llama.cpp/models/templates/README.md", "not a template"),
            ):
                entry = tarfile.TarInfo(f"{top}/{name}")
                entry.size = len(text.encode())
                sdist.addfile(entry, io.BytesIO(text.encode()))

    def start(self, *options: str, **env: str) -> subprocess.Popen[str]:
        """The installer in a process of its own; `env` are variables for it."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
        world = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.packages),
            "XDG_CACHE_HOME": str(self.cache),
        }
        return subprocess.Popen(
            [sys.executable, self.root / "scripts/install", *options],
            cwd=self.cache, stderr=subprocess.PIPE, text=True, env=clean | world | env,
        )  # fmt: skip

    def install(self, *options: str, code: int = 0, **env: str) -> str:
        """What the installer says; it must end with `code`."""
        with self.start(*options, **env) as process:
            _, said = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == code, said
        return said

    def cmake_args(self, venv: str = ".venv") -> str:
        """The options that the installed library was built with."""
        code = "import worker, llama_cpp; print(llama_cpp.arguments)"
        python = self.root / venv / "bin/python"
        return subprocess.check_output([python, "-c", code], text=True, timeout=TIMEOUT_S)

    def templates(self) -> dict[str, str]:
        """The chat templates that were kept: names and texts."""
        folder = self.cache / "gguf-worker/templates" / VERSION
        return {path.name: path.read_text() for path in folder.iterdir()}

    def leftovers(self) -> list[Path]:
        """Folders of builds and of templates that should be gone."""
        return [*self.cache.rglob("build-*"), *self.cache.rglob("new-*")]
