"""Importance matrices: what is summed, and what an interruption leaves."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.support.models import architectures
from worker.bench.fit.harm import rows_of
from worker.bench.fit.jobs import MatrixJob, MatrixMade, ask
from worker.bench.fit.matrix import cut_chunks, make_matrix
from worker.demo import HELDOUT_PATH, MODEL_PATH
from worker.errors import UsageError
from worker.gguf.imatrix import Collected, Sums, read_collected, read_imatrix
from worker.gguf.splits import open_header
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights
from worker.settings import Settings

TEXT = HELDOUT_PATH.read_text()[:6000]


def job(target: Path, model: Path = MODEL_PATH, chunk: int = 256, **changes: object) -> MatrixJob:
    """For a short text."""
    made = MatrixJob(
        path=str(model), settings=Settings(threads=1), texts=(TEXT,), dataset="text.txt",
        target=str(target), origin="this", chunk=chunk, chunks=3, with_output=False,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def finish(job: MatrixJob, stop_after: int = 1000) -> MatrixMade:
    """Do the job here, told to stop after so many chunks."""
    asked = iter(range(1000))
    return make_matrix(job, lambda _: None, lambda: next(asked) >= stop_after)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three chunks of the demo model, with the output matrix."""
    target = tmp_path_factory.mktemp("matrix") / "whole.gguf"
    assert finish(job(target, with_output=True)).chunks == 3
    return target


def test_the_first_layer_is_summed_as_it_is_computed(whole: Path) -> None:
    """The inputs of the first layer are the normalised embeddings of the tokens, BOS first."""
    header = open_header(MODEL_PATH)
    tensors = {tensor.name: tensor for tensor in header.tensors}
    with Weights(MODEL_PATH, LoadOptions()) as weights:
        tokens = cut_chunks((TEXT,), Vocab(weights.handle, 512), 256)[:3].reshape(-1)
    rows = rows_of(header, tensors["token_embd.weight"], tokens)
    norm = rows_of(header, tensors["blk.0.attn_norm.weight"], np.arange(1))[0]
    epsilon = header.keys["llama.attention.layer_norm_rms_epsilon"]
    scaled = rows / np.sqrt(np.square(rows).mean(axis=1, keepdims=True) + epsilon) * norm
    found = read_collected(whole).sums["blk.0.attn_q.weight"]
    assert found.counts.tolist() == [768]
    np.testing.assert_allclose(found.sums[0], np.square(scaled).sum(axis=0), rtol=1e-4)


def test_every_matrix_has_an_entry_as_wide_as_its_rows(whole: Path) -> None:
    """All matrices of all layers, the output matrix too if it is wanted; embeddings that are also
    the output matrix are that."""
    wide = {tensor.name: tensor.shape[0] for tensor in open_header(MODEL_PATH).tensors
            if len(tensor.shape) > 1}  # fmt: skip
    found = read_imatrix(whole)
    assert {name: values.size for name, values in found.entries.items()} == wide
    assert (found.dataset, found.chunks) == ("text.txt", 3)


def test_what_was_begun_is_continued(whole: Path, tmp_path: Path) -> None:
    """A run that is told to stop keeps whole chunks, and the same job goes on to the same sums;
    a job of another origin begins anew."""
    target = tmp_path / "matrix.gguf"
    asked = job(target, with_output=True)
    assert finish(asked, stop_after=1).chunks == 1
    assert read_collected(target).chunks == 1
    made = finish(asked)
    assert (made.begun, made.chunks) == (1, 3)
    ours, theirs = read_imatrix(target).entries, read_imatrix(whole).entries
    for name, values in theirs.items():
        np.testing.assert_allclose(ours[name], values, rtol=1e-5)
    assert finish(msgspec.structs.replace(asked, origin="other")).begun == 0


def test_the_process_keeps_what_there_is_when_it_is_closed(tmp_path: Path) -> None:
    """The caller leaves after the first chunk: the file has whole chunks."""
    target = tmp_path / "matrix.gguf"
    shares = ask(job(target, chunk=128, chunks=20), MatrixMade)
    assert next(shares) == 0
    assert next(shares) > 0
    shares.close()
    assert 1 <= read_collected(target).chunks <= 20


def test_a_matrix_ends_with_its_time(tmp_path: Path) -> None:
    """Four chunks are always computed."""
    made = finish(job(tmp_path / "matrix.gguf", chunk=64, chunks=20, seconds=0.0))
    assert (made.chunks, made.wanted) == (4, 20)


def test_experts_are_counted_one_by_one(tmp_path: Path) -> None:
    """Each token counts for the experts that it went to, and their inputs are the router's."""
    model, target = architectures.write_mixtral(tmp_path / "moe.gguf"), tmp_path / "m.gguf"
    assert finish(job(target, model, chunk=64)).chunks == 3
    sums = read_collected(target).sums
    router, gate = sums["blk.0.ffn_gate_inp.weight"], sums["blk.0.ffn_gate_exps.weight"]
    assert gate.counts.size == 4
    assert gate.counts.sum() == 2 * router.counts[0] == 2 * 192
    np.testing.assert_allclose(gate.sums.sum(axis=0), 2 * router.sums[0], rtol=1e-4)
    down = sums["blk.0.ffn_down_exps.weight"]
    assert down.counts.tolist() == gate.counts.tolist()


def test_experts_that_got_few_tokens_are_named() -> None:
    """Below a tenth of an even share; a matrix without experts has none."""
    counts = np.array([90, 5, 100, 0])
    collected = Collected(
        sums={"moe": Sums(np.ones((4, 2)), counts), "plain": Sums(np.ones((1, 2)), counts[:1])},
        dataset="", chunks=1, chunk_size=1, origin="",
    )  # fmt: skip
    assert collected.rare_experts == {"moe": [3]}
    assert msgspec.structs.replace(collected, sums={}).rare_experts == {}


def test_a_text_without_a_chunk_is_refused(tmp_path: Path) -> None:
    """It says how many tokens there are, and the next step; nothing is written."""
    target = tmp_path / "m.gguf"
    with pytest.raises(UsageError, match=r"too few for a chunk of 256.*--chunk"):
        finish(job(target, texts=("Short.",)))
    with pytest.raises(UsageError, match="too few for a chunk"):
        next(ask(job(target, texts=("Short.",)), MatrixMade))
    assert not target.exists()
