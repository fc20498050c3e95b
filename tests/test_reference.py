"""The engine against the numpy reference, and the reference against itself."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests import proof
from tests.support.models.ggufs import Tensor, f32, llama_gguf, text
from tests.support.models.reference import Cache, ReferenceLlama, perplexity
from worker.engine.request import GenerationParams, Prompt, Request

#: Kind of tolerance -> encoding that the writer makes; the K-quant mix is made by llama.cpp.
ENCODINGS = {"exact": "F32", "F32": "F32", "F16": "F16", "Q8_0": "Q8_0", "Q4_K_M": "F32"}
FILE_TYPE_Q4_K_M = 15


def write(path: Path, kind: str = "exact", *, rich: bool = False) -> Path:
    """A random Llama with four query heads per key/value head and norms that are not all one.

    rich: with an untied output, attention and feed-forward biases, RoPE factors and scaling
    """
    gguf = llama_gguf(
        layers=2, embedding=256, heads=8, kv_heads=2, feed_forward=512, tied=not rich,
        encoding=ENCODINGS[kind], seed=4,
    )  # fmt: skip
    rng = np.random.default_rng(5)

    def vector(name: str, width: int, mean: float, deviation: float) -> Tensor:
        values = rng.normal(mean, deviation, width).astype("<f4")
        return Tensor(name, (width,), 0, values.tobytes())

    for index, tensor in enumerate(gguf.tensors):
        if "norm" in str(tensor.name):
            gguf.tensors[index] = vector(str(tensor.name), 256, 1.0, 0.2)
    if rich:
        widths = {"attn_q": 256, "attn_k": 64, "attn_v": 64, "attn_output": 256,
                  "ffn_gate": 512, "ffn_up": 512, "ffn_down": 256}  # fmt: skip
        gguf.tensors += [
            vector(f"blk.{layer}.{name}.bias", width, 0.0, 0.3)
            for layer in range(2)
            for name, width in widths.items()
        ]
        factors = np.linspace(1, 8, 16, dtype="<f4")
        gguf.tensors.append(Tensor("rope_freqs.weight", (16,), 0, factors.tobytes()))
        gguf.keys["llama.rope.scaling.type"] = text("linear")
        gguf.keys["llama.rope.scaling.factor"] = f32(4.0)
    path = gguf.write(path)
    if kind == "Q4_K_M":
        return proof.reencode(path, path.with_stem("q4_k_m"), FILE_TYPE_Q4_K_M)
    return path


@pytest.mark.parametrize("kind", ENCODINGS)
def test_engine_agrees_with_the_reference(tmp_path: Path, kind: str) -> None:
    """Embedding, first block and logits agree: at once, in chunks, token by token, in a batch."""
    path = write(tmp_path / "model.gguf", kind)
    found = proof.measure(path, kind, ReferenceLlama(path))
    assert {(a.mode, a.checkpoint) for a in found} == {
        (mode, checkpoint)
        for mode in proof.MODES
        for checkpoint in ("embedding", "block", "logits")
    }
    assert [a for a in found if not a.holds] == []


def test_engine_agrees_with_all_that_a_llama_may_have(tmp_path: Path) -> None:
    """Biases, an untied output, RoPE factors and linear scaling mean the same to both."""
    path = write(tmp_path / "model.gguf", rich=True)
    found = proof.measure(path, "exact", ReferenceLlama(path))
    assert [a for a in found if not a.holds] == []


def pair_halves(model: ReferenceLlama) -> None:
    """Rotate value i with i + e/2, as GPT-NeoX does: the same as reordering Q's and K's rows."""
    width = model.head_width
    order = np.arange(width).reshape(2, -1).T.ravel()
    for layer in range(model.n_layer):
        for name in ("attn_q", "attn_k"):
            key = f"blk.{layer}.{name}.weight"
            heads = model.weights[key].reshape(-1, width, model.weights[key].shape[1])
            model.weights[key] = heads[:, order].reshape(model.weights[key].shape)


def regroup_heads(model: ReferenceLlama) -> None:
    """Let query head h read key/value head h modulo their number instead of h // g."""
    width, n_kv = model.head_width, model.n_head_kv
    order = np.arange(model.n_head * width).reshape(-1, n_kv, width).swapaxes(0, 1).ravel()
    for layer in range(model.n_layer):
        q, out = f"blk.{layer}.attn_q.weight", f"blk.{layer}.attn_output.weight"
        model.weights[q] = model.weights[q][order]
        model.weights[out] = model.weights[out][:, order]


def disturb_a_weight(model: ReferenceLlama) -> None:
    """Scale one matrix of the first block by 1.3."""
    model.weights["blk.0.ffn_down.weight"] = model.weights["blk.0.ffn_down.weight"] * 1.3


def shift_positions(model: ReferenceLlama) -> None:
    """Rotate by 10 % more for each position."""
    model.frequencies = model.frequencies * 1.1


@pytest.fixture(scope="module", params=["exact", "Q4_K_M"])
def recorded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, proof.RecordingBackend, dict[str, list[int]]]:
    """What the engine computed of several sequences: kind, file, rows, tokens.

    The strictest and the loosest tolerance stand for those between them.
    """
    kind = request.param
    path = write(tmp_path_factory.mktemp("recorded") / "model.gguf", kind)
    backend = proof.RecordingBackend(path, exact=kind == "exact")
    with backend:
        known = proof.run(backend, proof.requests("one of several", backend.vocab_size))
    return kind, path, backend, known


@pytest.mark.parametrize("mistake", [pair_halves, regroup_heads, disturb_a_weight, shift_positions])
def test_a_mistake_is_out_of_tolerance(
    recorded: tuple[str, Path, proof.RecordingBackend, dict[str, list[int]]],
    mistake: Callable[[ReferenceLlama], None],
) -> None:
    """A reference that computes something else disagrees at the block and the logits."""
    kind, path, backend, known = recorded
    wrong = ReferenceLlama(path)
    mistake(wrong)
    found = proof.compare("several", proof.TOLERANCES[kind], backend.rows, known, wrong)
    assert {a.checkpoint: a.holds for a in found} == {
        "embedding": True, "block": False, "logits": False,
    }  # fmt: skip


def test_prompt_logprobs_are_the_reference_s(tmp_path: Path) -> None:
    """The engine's scores of a prompt give the reference's perplexity."""
    path = write(tmp_path / "model.gguf")
    with proof.RecordingBackend(path, exact=True) as backend:
        prompt = proof.prompt_tokens(backend.vocab_size)
        asked = Request(
            id="one",
            prompt=Prompt(tuple(prompt)),
            params=GenerationParams(max_tokens=0, prompt_logprobs=0),
        )
        (delta,) = proof.deltas(backend, [asked])
    scores = delta.prompt_logprobs
    assert scores is not None
    assert [score.token for score in scores] == prompt[1:]
    mean = sum(score.logprob for score in scores) / len(scores)
    logits = ReferenceLlama(path).forward(prompt).logits
    assert math.exp(-mean) == pytest.approx(perplexity(logits, prompt), rel=1e-5)


def test_cache_changes_nothing(tmp_path: Path) -> None:
    """The reference gives the same for a prompt at once and in pieces, in either precision."""
    path = write(tmp_path / "model.gguf", rich=True)
    tokens = proof.prompt_tokens(320, 24)
    whole = ReferenceLlama(path, np.float64).forward(tokens)
    for dtype, tolerance in ((np.float32, 1e-5), (np.float64, 1e-12)):
        model, cache = ReferenceLlama(path, dtype), Cache()
        pieces = [model.forward(tokens[i : i + 5], cache).logits for i in range(0, 24, 5)]
        error = np.concatenate(pieces) - whole.logits
        assert np.linalg.norm(error) < tolerance * np.linalg.norm(whole.logits)


def test_perplexity_of_a_uniform_model_is_its_vocabulary() -> None:
    """exp of the mean surprise: 7 for logits that do not distinguish 7 tokens."""
    assert perplexity(np.zeros((4, 7)), [1, 2, 3, 4]) == pytest.approx(7)


def test_reference_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    """An unknown tensor, scaling or architecture is an error, not a plausible answer."""
    odd = llama_gguf()
    odd.tensors.append(Tensor("blk.0.attn_q_norm.weight", (16,), 0, bytes(64)))
    yarn = llama_gguf()
    yarn.keys["llama.rope.scaling.type"] = text("yarn")
    for gguf, word in (
        (odd, "q_norm"),
        (yarn, "yarn"),
        (llama_gguf(architecture="qwen2"), "qwen2"),
    ):
        with pytest.raises(ValueError, match=word):
            ReferenceLlama(gguf.write(tmp_path / "odd.gguf"))


def test_proof_writes_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run leaves its five files and one line, and exits with 0 when all agrees."""
    path = write(tmp_path / "model.gguf", "F16")
    assert proof.main(path, tmp_path / "proof") == 0
    (folder,) = (tmp_path / "proof").iterdir()
    contents = {file.stem: json.loads(file.read_text()) for file in folder.iterdir()}
    assert contents.keys() == {"checkpoints", "tolerances", "seeds", "greedy", "environment"}
    assert contents["checkpoints"].keys() == contents["tolerances"].keys()
    assert all(len(found) == 12 for found in contents["checkpoints"].values())
    assert contents["environment"]["packages"].keys() == set(proof.PACKAGES)
    last_line = capsys.readouterr().out.splitlines()[-1]
    assert last_line.startswith("48 of 48 checkpoints within tolerance")


def test_proof_fails_when_a_figure_is_out_of_tolerance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One error above its tolerance, or none measured (nan), makes the exit code 1."""
    missed = [proof.Agreement("at once", "logits", 40, 1.0, x, 0.1) for x in (0.2, math.nan)]

    def measure(*_: object) -> list[proof.Agreement]:
        return missed

    monkeypatch.setattr(proof, "measure", measure)
    assert proof.main(write(tmp_path / "model.gguf", "F16"), tmp_path / "proof") == 1
    last_line = capsys.readouterr().out.splitlines()[-1]
    assert last_line.startswith("0 of 8 checkpoints within tolerance")
