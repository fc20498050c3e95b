"""What ONNX Runtime computes of the cross-encoder, and `tokenizers` of texts, to hold us against.

`make check SUITE=reference` runs `python -m checks.real.reference_vectors` in .venv-reference.
It writes `ranking.json` beside this file: scores, token ids and versions, nothing of the weights.
It takes seconds.

The model's file holds matrices of 8 bits and rounds what they multiply to 8 bits too. Here the
matrices are made float32 and multiply float32, so nothing is rounded; the GGUF file that the worker
gets has the same numbers in F16.
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, helper, numpy_helper
from tokenizers import Tokenizer

from checks.real.questions import sets
from checks.real.texts import texts
from checks.real.weights import vectrix
from checks.real.words import words

PLACE = Path(__file__).parent / "ranking.json"
LIBRARIES = ("onnx", "onnxruntime", "tokenizers")
_QUANTIZED = "_quantized"


class Floats:
    """The graph with float matrices in the place of quantised ones."""

    def __init__(self, path: Path) -> None:
        self.model = onnx.load(path)
        graph = self.model.graph
        self._values = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
        self._makers = {name: node for node in graph.node for name in node.output}
        self._next = {name: node for node in graph.node for name in node.input}
        nodes = [self._plain(node) for node in graph.node]
        ends = {output.name for output in graph.output}
        while True:  # leave out what computed scales and rounded
            used = ends | {name for node in nodes for name in node.input}
            kept = [node for node in nodes if used.intersection(node.output)]
            if len(kept) == len(nodes):
                break
            nodes = kept
        made = {name for node in nodes for name in node.output}
        assert len(made) == sum(len(node.output) for node in nodes), "two nodes make one value"
        del graph.node[:], graph.initializer[:]
        graph.node.extend(nodes)
        graph.initializer.extend(
            numpy_helper.from_array(value, name)
            for name, value in self._values.items()
            if name in used
        )

    def _plain(self, node: NodeProto) -> NodeProto:
        """`node`, or what computes with floats what it and the nodes after it made."""
        if node.op_type == "MatMulInteger":
            rounded, matrix = node.input[:2]
            last = self._next[self._next[node.output[0]].output[0]]  # a cast, then the scales
            given = self._makers[rounded].input[0]
            return self._instead("MatMul", [given, self._float(matrix)], last)
        if node.op_type == "Gather" and node.input[0].endswith(_QUANTIZED):
            last = self._next[node.output[0]]
            return self._instead("Gather", [self._float(node.input[0]), node.input[1]], last)
        return node

    def _instead(self, kind: str, inputs: list[str], last: NodeProto) -> NodeProto:
        (output,) = last.output
        last.output[0] = f"{output} of quantised values"
        return helper.make_node(kind, inputs, [output])

    def _float(self, name: str) -> str:
        own = name.removesuffix(_QUANTIZED)
        shift = self._values[name].astype(np.float32) - self._values[own + "_zero_point"]
        self._values[f"{own} as floats"] = shift.astype(np.float32) * self._values[own + "_scale"]
        return f"{own} as floats"


def main() -> None:
    """Write the file."""
    folder = vectrix("reranker_en")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    session = onnxruntime.InferenceSession(Floats(folder / "model.onnx").model.SerializeToString())

    def score(question: str, document: str) -> float:
        pair = tokenizer.encode(question, document)
        given = {
            "input_ids": [pair.ids],
            "token_type_ids": [pair.type_ids],
            "attention_mask": [pair.attention_mask],
        }
        arrays = {name: np.array(value, np.int64) for name, value in given.items()}
        (logits,) = session.run(["logits"], arrays)
        return round(float(logits[0, 0]), 4)

    found: dict[str, Any] = {
        "versions": {name: version(name) for name in LIBRARIES}
        | {"python": platform.python_version()},
        "scores": [[score(question, each) for each in documents] for question, documents in sets()],
        "tokens": [tokenizer.encode(text).ids for text in [*words(), *texts()]],
    }
    lines = ",\n".join(
        f'"{key}": {json.dumps(value, separators=(",", ":"))}' for key, value in found.items()
    )
    PLACE.write_text(f"{{\n{lines}\n}}\n")
    print(found["scores"])


if __name__ == "__main__":
    main()
