"""llama.cpp in a child process that may die: what happens to a file that passed our checks.

`Judge.try_file` loads a file, makes a context, reads a text and computes one step, and says how
that ended. A child that was killed by a signal is replaced, so thousands of files can be tried.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

LOADED, REFUSED = "loaded", "refused"
_ANSWER = "answer: "


class Judge:
    """A persistent child; `try_file` answers `loaded`, `refused` or the name of a signal."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[str] | None = None

    def try_file(self, path: Path, *, vocab_only: bool = False) -> str:
        """Load and run the file at `path` in the child."""
        child = self.child or self._start()
        stdin, stdout = pipe(child.stdin), pipe(child.stdout)
        try:
            stdin.write(f"{int(vocab_only)} {path}\n")
            stdin.flush()
            # Whatever native code prints before it dies is not an answer.
            answer = next((line for line in stdout if line.startswith(_ANSWER)), "")
            answer = answer.removeprefix(_ANSWER).strip()
        except BrokenPipeError:
            answer = ""
        if answer:
            return answer
        code = child.wait()
        self.close()
        return ending(code)

    def _start(self) -> subprocess.Popen[str]:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.support.models.native"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[3],
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},
        )
        return self.child

    def close(self) -> None:
        """End the child."""
        child, self.child = self.child, None
        if child is not None:
            pipe(child.stdin).close()
            child.wait()
            pipe(child.stdout).close()


@contextmanager
def judge() -> Generator[Judge]:
    """A judge whose child ends with the block."""
    judge = Judge()
    try:
        yield judge
    finally:
        judge.close()


def pipe(stream: IO[str] | None) -> IO[str]:
    """One that the child was started with."""
    assert stream is not None
    return stream


def ending(code: int) -> str:
    """How a child ended: the signal's name, or its exit code."""
    return signal.Signals(-code).name if code < 0 else f"exit {code}"


def _serve() -> None:
    """The child: one line in, one line out."""
    import llama_cpp.llama_cpp as native

    silent = _be_silent()  # kept in a name: llama.cpp goes on calling it
    native.llama_backend_init()
    for line in sys.stdin:
        vocab_only, _, path = line.rstrip("\n").partition(" ")
        print(_ANSWER + _run(path, vocab_only == "1"), flush=True)
    del silent


def _be_silent() -> object:
    """Switch llama.cpp's log off; the object returned must outlive it."""
    import llama_cpp.llama_cpp as native

    def nothing(level: int, text: bytes, data: object) -> None:
        pass

    callback = native.llama_log_callback(nothing)
    native.llama_log_set(callback, ctypes.c_void_p())
    return callback


def _run(path: str, vocab_only: bool) -> str:
    import llama_cpp.llama_cpp as native

    model_options = native.llama_model_default_params()
    model_options.vocab_only = vocab_only
    model_options.n_gpu_layers = 0
    model = native.llama_model_load_from_file(path.encode(), model_options)
    if model is None:
        return REFUSED
    vocab = native.llama_model_get_vocab(model)
    assert vocab is not None
    tokens = (native.llama_token * 64)()
    text = "the rain\n in 1999, é 雨 🙂".encode()
    count = native.llama_tokenize(vocab, text, len(text), tokens, 64, True, True)
    answer = LOADED
    if not vocab_only:
        options = native.llama_context_default_params()
        options.n_ctx = options.n_batch = 64
        options.n_threads = options.n_threads_batch = 1
        context = native.llama_init_from_model(model, options)
        if context is None:
            answer = REFUSED
        else:
            batch = native.llama_batch_get_one(tokens, min(count, 8))
            if native.llama_decode(context, batch):
                answer = REFUSED
            native.llama_free(context)
    native.llama_model_free(model)
    return answer


if __name__ == "__main__":
    _serve()
