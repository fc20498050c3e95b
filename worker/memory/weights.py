"""How many bytes a model's weights take once they are loaded."""

from __future__ import annotations

from collections.abc import Iterable

from worker.gguf.quant import ENCODINGS
from worker.machine import PackedEncoding
from worker.model.config import ModelConfig


def weights_bytes(config: ModelConfig, packed: Iterable[PackedEncoding]) -> int:
    """Bytes of the weights on the CPU, which keeps these encodings in an order of their own.

    Each tensor is stored once, in the order that suits its encoding; a mapped file's other pages
    are given back. An embedding that is also the output is stored twice where that order differs
    from the plain one, because rows are looked up in the plain one.
    """
    embedding, embedding_bytes, tied = token_embedding(config)
    total = float(config.size_bytes)
    for encoding in packed:
        total += config.matrix_bytes.get(encoding.name, 0) * (encoding.growth - 1)
        if tied and encoding.name == embedding and config.vocab_size % encoding.rows == 0:
            total += embedding_bytes * encoding.growth
    return round(total)


def token_embedding(config: ModelConfig) -> tuple[str, int, bool]:
    """Encoding and bytes of the token embedding, and whether it is the output matrix too.

    The config has the sum of both matrices only. So two encodings of the mix are looked for whose
    bits make that sum. The output is never stored in fewer bits than the embedding.
    """
    elements = config.vocab_size * config.embedding
    if not elements or not config.n_embedding_params:
        return "", 0, False
    others = config.n_params - config.n_embedding_params
    nbytes = config.size_bytes - others * config.bits_per_weight_without_embeddings / 8
    bits = nbytes * 8 / config.n_embedding_params
    tied = config.n_embedding_params < 1.5 * elements
    sizes = {e.name: e.bits for e in ENCODINGS.values() if e.name in config.mix}
    for name, low in sizes.items():
        for high in (low,) if tied else (high for high in sizes.values() if high >= low):
            if abs((low + high) / 2 - bits) < 0.01:
                return name, int(elements * low / 8), tied
    return "", 0, tied
