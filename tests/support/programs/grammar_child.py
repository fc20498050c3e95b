"""llama.cpp's grammars in a process that they may kill: grammars in, one line out for each."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from worker.engine.request import Request, SamplingParams
from worker.errors import RequestError
from worker.grammar.constraint import Constraint
from worker.llama.guides.guides import Guides
from worker.llama.sampling.sampler import Sampler
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights


class GrammarChild:
    """llama.cpp in another process; `answer` says how it took a grammar."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.programs.grammar_child", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[3],
        )

    def answer(self, grammar: str) -> str:
        """`taken`, `refused`, or nothing from a child that died or took seconds."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(grammar) + "\n")
        stdin.flush()
        line = next((line for line in stdout if line.startswith("answer:")), "")
        return line.removeprefix("answer:").strip()


@contextmanager
def grammar_child(path: Path) -> Generator[GrammarChild]:
    """A child with the vocabulary of the model at `path`; it ends with the block."""
    child = GrammarChild(path)
    try:
        yield child
    finally:
        child.process.kill()
        child.process.communicate()


def _serve(path: Path) -> None:
    import numpy as np

    weights = Weights(path, LoadOptions(n_gpu_layers=0, vocab_only=True))
    vocab = Vocab(weights.handle, 64)
    workspace = Workspace(vocab.size)
    for line in sys.stdin:
        signal.alarm(5)  # its default action ends the process even inside native code
        try:
            constraint = Constraint(kind="gbnf", text=json.loads(line))
            params = SamplingParams(constraint=constraint, temperature=0)
            request = Request(id="", prompt=(1,), max_tokens=1, sampling=params)
            sampler = Sampler(request, vocab, workspace, Guides(vocab, workspace))
            sampler.survivors(np.zeros(vocab.size).tolist())
            sampler.free()
            answer = "taken"
        except RequestError:
            answer = "refused"
        signal.alarm(0)
        print(f"answer:{answer}", flush=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
