"""What a file says of vectors and scores, and what it lacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.models.embedders import WIDTH, Embedder
from tests.support.models.ggufs import STR, array
from worker.errors import ModelFileError, UsageError
from worker.model.config import load_config
from worker.model.vectors import pooling_of


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta", "modern-bert", "jina-bert-v2", "neo-bert"])
def test_a_classifier_means_ranking(kind: str, tmp_path: Path) -> None:
    """A file with a classifier that says no pooling ranks; one that says a pooling keeps it."""
    for pooling, expected in ((None, "rank"), (4, "rank"), (1, "mean")):
        path = Embedder(kind, pooling=pooling, classifier=1).write(tmp_path / "a.gguf")
        config = load_config(path, purpose="serve")
        assert config.vectors.classifies
        assert pooling_of(config.vectors, None, only_embeds=True) == expected
        assert ("scores texts" in config.does) == (expected == "rank")


def test_half_a_classifier_is_none(tmp_path: Path) -> None:
    """A layer in front of outputs that are not there is left over from training: no ranking."""
    model = Embedder("modern-bert", pooling=None, classifier=1)
    del model.tensors["cls.output.weight"], model.tensors["cls.output.bias"]
    vectors = load_config(model.write(tmp_path / "a.gguf"), purpose="serve").vectors
    assert not vectors.classifies
    assert pooling_of(vectors, None, only_embeds=True) == "mean"
    with pytest.raises(UsageError, match="needs a classifier"):
        pooling_of(vectors, "rank", only_embeds=True)


def test_flaws(tmp_path: Path) -> None:
    """BERT without its pooler, and DistilBERT, are told; other classifiers have no flaw."""

    def flaw(model: Embedder) -> str | None:
        return load_config(model.write(tmp_path / "a.gguf"), purpose="serve").vectors.flaw

    assert "pooler" in (flaw(Embedder("bert", pooling=None, classifier=1, pooler=False)) or "")
    distilled = Embedder("bert", pooling=None, classifier=1)
    del distilled.tensors["token_types.weight"]
    assert "DistilBERT" in (flaw(distilled) or "")
    sound = [Embedder("bert"), Embedder("bert", pooling=None, classifier=1)]
    sound += [
        Embedder(kind, pooling=None, classifier=1, pooler=kind != "xlm-roberta")
        for kind in ("xlm-roberta", "modern-bert", "jina-bert-v2", "neo-bert")
    ]
    assert [flaw(model) for model in sound] == [None] * len(sound)


def test_classifiers_that_do_not_fit(tmp_path: Path) -> None:
    """Shapes are those of the labels; a classifier under the pooler's name says how to mend it."""

    def refused(model: Embedder) -> ModelFileError:
        with pytest.raises(ModelFileError) as caught:
            load_config(model.write(tmp_path / "a.gguf"), purpose="serve")
        return caught.value

    unnamed = Embedder("bert", pooling=None)
    unnamed.tensors["cls.weight"] = np.zeros((2, WIDTH))
    error = refused(unnamed)
    assert error.code == "TENSOR_SHAPE"
    assert error.field == "cls.weight"
    assert "id2label" in (error.hint or "")
    for kind, name in (
        ("bert", "classifier.weight"), ("bert", "pooler.dense.weight"), ("bert", "score.weight"),
        ("bert", "cls.out_proj.weight"), ("nomic-bert", "cls.output.weight"),
    ):  # fmt: skip
        other = Embedder(kind, pooling=None)
        other.tensors[name] = np.zeros((1, WIDTH))
        error = refused(other)
        assert (error.code, error.field) == ("UNKNOWN_TENSOR", name)
    more = Embedder("bert", pooling=None, classifier=2)
    more.outputs = 3
    error = refused(more)
    assert (error.code, error.field) == ("TENSOR_SHAPE", "cls.output.weight")
    two = Embedder("jina-bert-v2", pooling=None, classifier=1)
    two.outputs = 2
    assert refused(two).code == "BAD_VALUE"
    without = Embedder("bert", pooling=None, classifier=1)
    path = without.write(tmp_path / "b.gguf", **{"classifier.output_labels": array(STR, [])})
    assert load_config(path, purpose="serve").vectors.labels == ()
