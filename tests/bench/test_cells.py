"""Types of cells: what is read, what is measured, and which ones are taken."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from worker.bench.cells.needles import NEEDLES, haystack
from worker.bench.cells.scores import CellsLevel, CellsScores, recommend
from worker.bench.sections import Divergence
from worker.demo import HELDOUT_PATH, MODEL_PATH
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights
from worker.settings import CACHE_TYPES
from worker.values import cells_list


def test_types_as_they_are_written() -> None:
    """One type for both, or one of each; each pair once."""
    read = cells_list(*CACHE_TYPES)
    assert read("f16, Q8_0,k:q8_0/v:q4_0,q8_0") == (
        ("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "q4_0")
    )  # fmt: skip
    for text in ("q9", "k:q8_0", "k:q8_0/q4_0", "", "f16,,q8_0"):
        with pytest.raises(ValueError, match="must be"):
            read(text)


def level(cells: str, nbytes: int, kld: float, needles: int, error: float = 0.0) -> CellsLevel:
    """What was measured."""
    names = dict.fromkeys(Divergence.__struct_fields__, 0.0)
    found = Divergence(**{**names, "kld_mean": kld, "kld_mean_error": error})  # type: ignore[arg-type]
    scores = CellsScores(
        bytes_per_cell=nbytes, divergence=found, choices=[],
        needles=[place < needles for place in range(8)], read_per_s=1.0, write_per_s=1.0,
    )  # fmt: skip
    return CellsLevel(
        file="F16", cells=cells, bytes_per_cell=nbytes, scores=scores, is_reference=cells == "f16"
    )


def test_the_smallest_cells_that_are_near_enough_are_taken() -> None:
    """By the divergence with its error, by the needles and by the size; else the reference."""
    reference = level("f16", 16, 0.0, 4)
    near, far = level("q8_0", 9, 0.001, 4), level("q4_0", 5, 0.02, 4)
    assert recommend([reference, near, far]) == {"F16": "q8_0"}
    assert recommend([reference, far]) == {"F16": "f16"}
    assert recommend([reference, level("q8_0", 9, 0.001, 3)]) == {"F16": "f16"}
    assert recommend([reference, level("q8_0", 9, 0.009, 4, error=0.01)]) == {"F16": "f16"}
    assert recommend([msgspec.structs.replace(near, scores=None)]) == {}


def test_needles_stand_in_the_text_once() -> None:
    """The text is whole, each number stands in it, and each question has its own answer."""
    with Weights(MODEL_PATH, LoadOptions()) as weights:
        vocab = Vocab(weights.handle, 512)
        ids = vocab.tokenize(HELDOUT_PATH.read_text()[:3000], add_special=True, parse_special=False)
        hay = haystack(np.array(ids[:400], np.int32), vocab, 0)
        text = b"".join(vocab.pieces[int(token)] for token in hay.tokens).decode()
        answers = [b"".join(vocab.pieces[t] for t in end).decode().strip() for end in hay.endings]
    assert len(hay.asked) == len(set(answers)) == NEEDLES
    assert all(text.count(f" is {answer}.") == 1 for answer in answers)
    assert hay.tokens.size > 400
