"""How a model makes one vector, or a score, of a text: what the file says, and what was asked."""

from __future__ import annotations

import re

import msgspec

from worker.errors import UsageError
from worker.gguf.fields import Fields

# By llama.cpp's numbers. A vector for each token; their mean; the first one's; the last one's;
# what a classifier makes of one.
POOLINGS = ("none", "mean", "cls", "last", "rank")
# Tokens of a text that is read in parts, at most: of a model that writes too always, of another one
# where nobody says more with --ctx-size. llama.cpp keeps room for the logits of each of its tokens.
LONGEST_IN_PARTS = 8192
_HEADS = frozenset({"cls.weight", "cls.output.weight"})
# Trained so that the beginning of a vector is a vector too (arXiv:2205.13147). No file says it.
_CAN_BE_CUT = re.compile(
    r"nomic-embed-text-v(1\.5|2)|mxbai-embed-large-v1|qwen3-embedding|embedding-?gemma|"
    r"jina-embeddings-v[34]|arctic-embed-[ml]-v(1\.5|2)|arctic-embed-l-v2|gte-modernbert|"
    r"modernbert-embed|granite-embedding-.*r2|f2llm|kalm-embedding"
)


class VectorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of vectors.

    pooling     how those of a text's tokens become one; None: the file does not say
    width       elements of one
    labels      what the classifier's outputs mean; empty: it has one output, or there is none
    classifies  whether there is a classifier
    can_be_cut  whether the beginning of a vector is a vector too
    """

    pooling: str | None
    width: int
    labels: tuple[str, ...]
    classifies: bool
    can_be_cut: bool


def vector_config(fields: Fields, embedding: int, name: str | None) -> VectorConfig:
    """Of a header. embedding: elements of a token's; name: the model's."""
    number = fields.count(".pooling_type")
    labels = fields.strings(".classifier.output_labels")
    called = re.sub(r"[\s_]+", "-", (name or "").lower())
    return VectorConfig(
        pooling=None if number is None or number >= len(POOLINGS) else POOLINGS[number],
        width=fields.count(".embedding_length_out") or embedding,
        labels=() if labels is None else tuple(labels[place] for place in range(len(labels))),
        classifies=any(tensor.name in _HEADS for tensor in fields.header.tensors),
        can_be_cut=_CAN_BE_CUT.search(called) is not None,
    )


def pooling_of(vectors: VectorConfig, asked: str | None, *, only_embeds: bool) -> str | None:
    """How vectors are made; None: there are none. A model that is for nothing else makes the mean
    where its file says nothing.

    Raises UsageError where a score was asked for and there is no classifier.
    """
    found = asked or (vectors.pooling or "mean" if only_embeds else None)
    if found == "rank" and not vectors.classifies:
        if asked is None:  # the file says so, without the tensors
            return "cls"
        raise UsageError(
            "--pooling rank needs a classifier, and this file has none.",
            hint="Choose a reranker, or another --pooling.",
        )
    return found
