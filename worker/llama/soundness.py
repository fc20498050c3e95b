"""Whether the installed llama.cpp computes rightly on this CPU: a child process proves it, and what
it found is remembered.

Nothing here loads native code: a library of another machine may die at its first instruction.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import sys
import threading
import time
from pathlib import Path

import msgspec

from worker import log, machine
from worker.child import Child, ProcessEnd
from worker.errors import BackendError, WorkerError
from worker.files import atomic_write, cache_folder
from worker.llama import variants
from worker.llama.process import death

PATIENCE_S = 300.0
"""How long a proof may take, on however busy a machine."""
# This is about the CPU. numpy would start a thread for each one of them.
_HIDDEN = {
    "CUDA_VISIBLE_DEVICES": "",
    "GGML_VK_VISIBLE_DEVICES": "",
    "OPENBLAS_NUM_THREADS": "1",
    "GGML_NO_BACKTRACE": "1",
}
_CODE = "NOT_PROVEN"
_HINT = "`make install` builds it for this CPU, without a feature that fails the self-test."
_AGAIN_HINT = "Start again; if memory is short, free some."
_LOAD_HINT = (
    "Its shared libraries do not fit each other or this system: `make install` builds them here; "
    "name another compiler with CXX=... if that one's libraries fail too."
)
_begun: dict[str, Proof] = {}
_begun_lock = threading.Lock()


class Features(msgspec.Struct, frozen=True, tag="features"):
    """Of the CPU, which the library uses, as ggml names them."""

    names: tuple[str, ...]


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    """What is loaded next; no kernel computes anything in it."""

    what: str

    def __str__(self) -> str:
        return f"it loads {self.what}, before a kernel computes"


class ProofCase(msgspec.Struct, frozen=True, tag="case"):
    """What is computed next; rows 0: the weights are read and rearranged."""

    encoding: str
    rows: int
    attention: str = ""
    cells: str = ""

    def __str__(self) -> str:
        if not self.rows:
            return f"{self.encoding} weights as they are loaded"
        rows = f"{self.rows} row{'s' * (self.rows > 1)}"
        return f"{self.encoding} with {rows} ({self.attention} attention, {self.cells} cells)"


class WrongCase(msgspec.Struct, frozen=True, tag="wrong"):
    """The case before is off by this: squared error over squared logits, and what is allowed."""

    error: float
    allowed: float

    def __str__(self) -> str:
        return f"with an error of {self.error:.2g} where {self.allowed:g} is allowed"


class Done(msgspec.Struct, frozen=True, tag="done"):
    """All cases are right.

    worst  the largest error of all rows of a case
    """

    cases: int
    worst: float


ProofFrame = Features | Loading | ProofCase | WrongCase | Done
_decoder = msgspec.json.Decoder(ProofFrame)


class Soundness(msgspec.Struct, frozen=True, kw_only=True):
    """What a proof found.

    features  of the CPU, which the library uses, as ggml names them
    proven    when, in UTC
    seconds   how long it took
    cases     that were right
    worst     the largest error among them: squared error over squared logits
    problem   what is wrong, as a clause; "": nothing
    at_load   it ended while it was loaded: no kernel is to blame, and so no feature of the CPU
    """

    features: tuple[str, ...]
    proven: str
    seconds: float
    cases: int = 0
    worst: float = 0.0
    problem: str = ""
    at_load: bool = False

    def __str__(self) -> str:
        return f"{self.cases} cases right in {self.seconds:.1f} s, using {', '.join(self.features)}"

    @property
    def is_sound(self) -> bool:
        """Whether it may be used."""
        return not self.problem

    def require(self) -> None:
        """Raise BackendError where the library is not to be used on this CPU."""
        if self.problem and self.at_load:
            raise BackendError(
                f"The installed llama.cpp cannot be loaded: it {self.problem}.",
                hint=_LOAD_HINT,
                code=_CODE,
            )
        if self.problem:
            used = ", ".join(self.features) or "unknown"
            raise BackendError(
                f"The installed llama.cpp is not sound on this CPU: it {self.problem} "
                f"(features in use: {used}).",
                hint=_HINT,
                code=_CODE,
            )


class Proof:
    """A proof that is known, or under way in a child process."""

    def __init__(self, variant: str = "") -> None:
        """Look for what is known; else start the child, which works beside the caller."""
        self._key = key(variant)
        self._known = recall(self._key)
        self._child = None if self._known else _ProofChild(variant)
        self._lock = threading.Lock()
        death.at_death(self._forget)

    @property
    def is_known(self) -> bool:
        """Whether `verdict` need not wait."""
        return self._known is not None

    def _forget(self) -> None:
        """After a native death the next start, or install, proves anew."""
        for folder in _folders():
            with contextlib.suppress(OSError):
                (folder / f"{self._key}.json").unlink()

    def verdict(self) -> Soundness:
        """What was found; waits for the child. Raises BackendError where it could not be proven:
        it was killed, or took too long."""
        with self._lock:
            if self._known is None:
                assert self._child is not None
                self._known = self._child.verdict()
                remember(self._key, self._known)
                log.get("proof").info(
                    "llama.cpp is proven on this CPU" if self._known.is_sound else "not sound",
                    cases=self._known.cases,
                    seconds=round(self._known.seconds, 1),
                    features=" ".join(self._known.features),
                )
            return self._known


def begin(variant: str = "") -> Proof:
    """The proof of this process's library, started at the first call."""
    with _begun_lock:
        if variant not in _begun:
            _begun[variant] = Proof(variant)
        return _begun[variant]


def anew() -> tuple[str, Soundness]:
    """Prove now, whatever is known: the key that it is remembered by, and what was found.

    Of a build with several variants that is the best sound one, or the last one if none is.
    Raises what `Proof.verdict` raises.
    """
    names = [variant.name for variant in variants.rank_variants(library_folder())] or [""]
    while True:
        name = names.pop(0)
        found = _ProofChild(name).verdict()
        remember(key(name), found)
        if found.is_sound or not names:
            return key(name), found


def key(variant: str = "") -> str:
    """A hash of the library's files and of this CPU."""
    files = sorted(library_folder().glob("lib*"))
    states = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    # What is loaded in front of it may replace parts of it.
    text = repr((states, machine.cpu(), variant, _source(), os.environ.get("LD_PRELOAD", "")))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def library_folder() -> Path:
    """Where the bindings keep llama.cpp's libraries; found without loading any. Raises
    BackendError."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise BackendError(
            "llama-cpp-python is not installed.", hint="Run `make install`.", code=_CODE
        )
    return Path(spec.origin).parent / "lib"


def _source() -> list[int]:
    """Of the proof itself: another one proves anew."""
    here = Path(__file__)
    files = [here, *sorted((here.parent / "proof").glob("*.py"))]
    return [path.stat().st_size for path in files]


def recall(key: str) -> Soundness | None:
    """What is remembered; None where nothing is, or nothing that can be read."""
    for folder in _folders():
        path = folder / f"{key}.json"
        with contextlib.suppress(OSError, msgspec.DecodeError):
            if path.is_file():  # to open a pipe would wait for a writer
                return msgspec.json.decode(path.read_bytes(), type=Soundness)
    return None


def remember(key: str, verdict: Soundness) -> None:
    """Keep it for later processes, beside the environment or in the user's cache."""
    for folder in _folders():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(folder / f"{key}.json") as partial:
                partial.write_bytes(msgspec.json.encode(verdict))
            return
    log.get("proof").warning(
        "that llama.cpp was proven cannot be remembered, so each start proves it again",
        hint="set XDG_CACHE_HOME to a folder that can be written to",
    )


def _folders() -> list[Path]:
    """Where verdicts are: in the virtual environment, for all its users, and in the cache."""
    folders: list[Path] = []
    if sys.prefix != sys.base_prefix:
        folders.append(Path(sys.prefix) / "share" / "gguf-worker" / "proofs")
    with contextlib.suppress(WorkerError):
        folders.append(cache_folder("proofs"))
    return folders


class _ProofChild:
    """The process that computes, beside the caller."""

    def __init__(self, variant: str) -> None:
        self._begun = time.monotonic()
        environment = os.environ | _HIDDEN | {variants.TOLD: variant}
        self._child = Child("worker.llama.proof.child", environment)

    def verdict(self) -> Soundness:
        """Wait for its end, and say what its frames and its end mean. Raises BackendError."""
        # The first things that a process does are Python's and the loader's.
        where: Loading | ProofCase = Loading("its libraries")
        features, problem, done = tuple[str, ...](), "", None
        deadline = time.monotonic() + PATIENCE_S
        with contextlib.closing(self._child):
            try:
                while (data := self._child.receive(deadline - time.monotonic())) is not None:
                    said: ProofFrame = _decoder.decode(data)
                    match said:
                        case Features() as found:
                            features = found.names
                        case Loading() | ProofCase() as found:
                            where = found
                        case WrongCase() as found:
                            problem = f"computes {where} wrongly, {found}"
                        case Done() as found:
                            done = found
            except TimeoutError:
                raise BackendError(
                    f"The self-test of llama.cpp took more than {PATIENCE_S:.0f} seconds.",
                    hint="Start again when the machine is less busy.",
                    code=_CODE,
                ) from None
            if done is None and not problem:
                problem = _problem(self._child.ending(), where)
        return Soundness(
            features=features,
            proven=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            seconds=round(time.monotonic() - self._begun, 2),
            cases=done.cases if done else 0,
            worst=round(done.worst, 6) if done else 0.0,
            problem=problem,
            at_load=bool(problem) and isinstance(where, Loading),
        )


def _problem(ending: ProcessEnd, where: Loading | ProofCase) -> str:
    """What is wrong where the child ended early; raises BackendError where that says nothing."""
    is_loading = isinstance(where, Loading)
    place = f"while {where}" if is_loading else f"at {where}"
    if ending.fault:
        return f"dies of {ending.fault} {place}"
    if "llama.cpp gave up" in ending.last:  # a failed assertion, in our words
        return f"gives up {place}: {ending.last.partition('gave up: ')[2].rstrip('.')}"
    raise BackendError(
        f"The self-test of llama.cpp on this CPU ended {place} with {ending}.",
        hint=_LOAD_HINT if is_loading and ending.code > 0 else _AGAIN_HINT,
        code=_CODE,
    )
