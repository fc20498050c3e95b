"""How a model makes one vector, or a score, of a text: what the file says, and what was asked."""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from worker.errors import UsageError
from worker.gguf.fields import Fields

# By llama.cpp's numbers. A vector for each token; their mean; the first one's; the last one's;
# what a classifier makes of one.
POOLINGS = ("none", "mean", "cls", "last", "rank")
# What makes scores of what the last layer says; jina-bert-v2's classifier is one matrix.
_HEAD, _HEAD_OUTPUT = "cls.weight", "cls.output.weight"
_OUTPUT_OF = {"jina-bert-v2": _HEAD}
_NO_POOLER = (
    "BERT's pooler is missing (cls.weight), which llama.cpp's converter leaves out: scores are "
    "near 0 for any pair, their order is less sure, and thresholds do not fit"
)
_NO_RELU = (
    "this is a DistilBERT, whose classifier has ReLU, and llama.cpp computes tanh in its place: "
    "scores are not the model's own"
)
# Tokens of a text that is read in parts, at most: of a model that writes too always, of another one
# where nobody says more with --ctx-size. llama.cpp keeps room for the logits of each of its tokens.
LONGEST_IN_PARTS = 8192
# Trained so that the beginning of a vector is a vector too (arXiv:2205.13147). No file says it.
_CAN_BE_CUT = re.compile(
    r"nomic-embed-text-v(1\.5|2)|mxbai-embed-large-v1|qwen3-embedding|embedding-?gemma|"
    r"jina-embeddings-v[34]|arctic-embed-[ml]-v(1\.5|2)|arctic-embed-l-v2|gte-modernbert|"
    r"modernbert-embed|granite-embedding-.*r2|f2llm|kalm-embedding"
)


class VectorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of vectors.

    pooling     how those of a text's tokens become one; None: the file does not say. `rank` only
                where there is a classifier
    width       elements of one
    labels      what the classifier's outputs mean; empty: it has one output, or there is none
    classifies  whether there is a classifier
    flaw        why its scores are not those of the model that the file was made of; None: they are
    can_be_cut  whether the beginning of a vector is a vector too
    """

    pooling: str | None
    width: int
    labels: tuple[str, ...]
    classifies: bool
    flaw: str | None
    can_be_cut: bool


def vector_config(fields: Fields, embedding: int, name: str | None) -> VectorConfig:
    """Of a header. embedding: elements of a token's; name: the model's.

    A file with a classifier that does not say how to pool is a reranker: the converter writes so.
    """
    number = fields.count(".pooling_type")
    names = {tensor.name for tensor in fields.header.tensors}
    classifies = _OUTPUT_OF.get(fields.architecture, _HEAD_OUTPUT) in names
    pooling = None if number is None or number >= len(POOLINGS) else POOLINGS[number]
    if pooling == "rank" and not classifies:
        pooling = "cls"
    labels = fields.strings(".classifier.output_labels")
    called = re.sub(r"[\s_]+", "-", (name or "").lower())
    return VectorConfig(
        pooling="rank" if pooling is None and classifies else pooling,
        width=fields.count(".embedding_length_out") or embedding,
        labels=() if labels is None else tuple(labels[place] for place in range(len(labels))),
        classifies=classifies,
        flaw=_flaw(fields, names) if classifies else None,
        can_be_cut=_CAN_BE_CUT.search(called) is not None,
    )


def _flaw(fields: Fields, names: Collection[str]) -> str | None:
    if fields.architecture != "bert" or fields.text("tokenizer.ggml.model") != "bert":
        return None
    if _HEAD not in names:
        return _NO_POOLER
    return None if "token_types.weight" in names else _NO_RELU


def pooling_of(vectors: VectorConfig, asked: str | None, *, only_embeds: bool) -> str | None:
    """How vectors are made; None: there are none. A model that is for nothing else makes the mean
    if its file says nothing.

    Raises UsageError where a score was asked for and there is no classifier.
    """
    found = asked or (vectors.pooling or "mean" if only_embeds else None)
    if found == "rank" and not vectors.classifies:
        raise UsageError(
            "--pooling rank needs a classifier, and this file has none.",
            hint="Choose a reranker, or another --pooling.",
        )
    return found
