"""`worker embed`: lines in, vectors out."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.models.embedders import CONTEXT, Embedder

LINES = "the rain in spain\n\nstays\r\nmainly in the plain"


def worker(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "worker", "embed", *arguments],
        input=stdin, capture_output=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Embedder("bert").write(tmp_path_factory.mktemp("models") / "bert.gguf")


def test_each_line_has_its_vector(model: Path, tmp_path: Path) -> None:
    """In each form the same ones, of a file as of standard input; --skip goes on."""
    text = tmp_path / "text.txt"
    text.write_text(LINES, newline="")
    plain = worker(text, "--model", model)
    assert plain.returncode == 0, plain.stderr
    rows = np.loadtxt(io.BytesIO(plain.stdout))
    assert rows.shape == (4, 64)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    told = worker("--model", model, "--json", stdin=LINES.encode()).stdout
    lines = [json.loads(line) for line in told.splitlines()]
    assert [line["index"] for line in lines] == [0, 1, 2, 3]
    np.testing.assert_allclose([line["embedding"] for line in lines], rows, atol=1e-6)
    array = np.load(io.BytesIO(worker(text, "--model", model, "--npy", "--skip", "1").stdout))
    assert array.dtype == np.float32
    np.testing.assert_allclose(array, rows[1:], atol=1e-4)


def test_a_line_does_not_wait_for_the_next(model: Path) -> None:
    """Its vector is there before the next one is sent, and before one that cannot be read."""
    command = [sys.executable, "-m", "worker", "embed", "--model", str(model)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"the rain\n", b"in spain\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert len(process.stdout.readline().split()) == 64
        told, said = process.communicate(b"a\n\xff\nb\n", timeout=60)
    assert process.returncode == 2
    assert len(told.splitlines()) == 1
    assert "Line 4 is not UTF-8 at its byte 0." in said.decode()
    assert worker("--model", model, "--skip", "1", stdin=b"\xff\na\n").returncode == 0


def test_long_lines(model: Path) -> None:
    """The number of the line and both lengths, or cut."""
    text = b"a\n" + b"a " * 200
    refused = worker("--model", model, stdin=text)
    assert refused.returncode == 2
    assert f"Line 2 has 202 tokens, {CONTEXT} is the most." in refused.stderr.decode()
    assert worker("--model", model, "--truncate", stdin=text).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        ((), b"a", "writes text"),
        (("--model", "MODEL"), b"a\n\xff", "Line 2 is not UTF-8 at its byte 0"),
        (("--model", "MODEL", "--pooling", "rank"), b"a", "needs a classifier"),
        (("--model", "MODEL", "--pooling", "none"), b"a", "--pooling mean"),
    ],
)
def test_one_sentence(model: Path, arguments: tuple[str, ...], text: bytes, said: str) -> None:
    """What is wrong, and exit code 2."""
    named = [str(model) if word == "MODEL" else word for word in arguments]
    done = worker(*named, stdin=text)
    assert done.returncode == 2
    assert said in done.stderr.decode()
