"""Token types of BERT's pairs: which text a token belongs to, that before the first [SEP] or what
follows it.

llama.cpp gives every token the first type. Rows may be vectors in the place of tokens, so a row of
the second text is its token's vector plus the difference of the types. A row of the first text is
computed bit for bit as its token is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from worker.gguf.header import ModelFile, TensorInfo
from worker.gguf.quant import ENCODINGS
from worker.gguf.reader import read_header
from worker.gguf.source import pin

_TOKENS, _TYPES = "token_embd.weight", "token_types.weight"


class TokenTypes:
    """Turns the tokens of pairs into vectors, of which each has its text's type."""

    def __init__(self, tokens: FileRows, types: np.ndarray, sep: int) -> None:
        """types: float32 [2 or more, width]; sep: the token between two texts"""
        self._tokens, self._sep = tokens, sep
        self._difference = types[1] - types[0]

    @classmethod
    def of(cls, files: Sequence[ModelFile], sep: int) -> Self | None:
        """Of a model's files; None: it does not have two types. Raises ModelFileError."""
        found: dict[str, FileRows] = {}
        with pin(files) as paths:
            for path in paths:
                for tensor in read_header(path).tensors:
                    if tensor.name in (_TOKENS, _TYPES):
                        found[tensor.name] = FileRows(Path(path), tensor)
        types = found.get(_TYPES)
        if types is None or types.count < 2:
            return None
        return cls(found[_TOKENS], types.values(np.arange(2)), sep)

    def vectors(self, tokens: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """float32 [tokens, width], of whole texts one after the other. positions: from 0 in each"""
        made = self._tokens.values(tokens)
        seps = np.cumsum(tokens == self._sep) - (tokens == self._sep)
        begins = np.flatnonzero(positions == 0)
        before = np.repeat(seps[begins], np.diff(begins, append=len(tokens)))
        made[seps > before] += self._difference
        return made


class FileRows:
    """Rows of a matrix as its file has them, mapped: nothing is read before it is asked for."""

    def __init__(self, path: Path, tensor: TensorInfo) -> None:
        self._encoding = ENCODINGS[tensor.type].name
        self.count = tensor.shape[1] if len(tensor.shape) > 1 else 1
        shape = (self.count, tensor.nbytes // self.count)
        self._data = np.asarray(np.memmap(path, np.uint8, "r", tensor.offset, shape))

    def values(self, rows: np.ndarray) -> np.ndarray:
        """float32 [rows, width]"""
        from worker.llama.proof.blocks import values

        return values(self._encoding, self._data[rows])
