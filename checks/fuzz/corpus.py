"""The sound files that are damaged."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from checks.fuzz.tokenizers import TOKENIZERS
from tests.support.models import architectures, ggufs, heads, templates
from tests.support.models.embedders import ARCHITECTURES, Embedder
from tests.support.models.ggufs import Gguf, Key, Tensor, text, u32
from tests.support.models.parsing import parsed

VOCABS = (Path(__file__).parents[2] / "../shared/vocabs").resolve()
DEMO = Path(__file__).parents[2] / "worker/demo"
_TINY = {"layers": 1, "embedding": 32, "heads": 2, "kv_heads": 1, "feed_forward": 32,
         "vocab_size": 300}  # fmt: skip
_SPLITS = 3


@dataclass(frozen=True)
class Seed:
    """A sound model.

    make   its files, the first one first
    slow   it takes far longer to judge than the others: it comes up less often
    """

    name: str
    make: Callable[[], list[Gguf]]
    slow: bool = False

    def parts(self) -> list[Gguf]:
        """Files that may be changed."""
        return [
            replace(
                part, keys=dict(part.keys), more_keys=[], tensors=[replace(t) for t in part.tensors]
            )
            for part in _made(self)
        ]


@cache
def _made(seed: Seed) -> list[Gguf]:
    return seed.make()


def _written(write: Callable[[Path], Path]) -> Callable[[], list[Gguf]]:
    def make() -> list[Gguf]:
        with tempfile.TemporaryDirectory() as folder:
            return [parsed(write(Path(folder) / "m.gguf").read_bytes())]

    return make


def _llama(**options: object) -> Callable[[], list[Gguf]]:
    return lambda: [ggufs.llama_gguf(**{**_TINY, **options})]  # type: ignore[arg-type]


def _encoded(encoding: str) -> Callable[[], list[Gguf]]:
    """Width and rows as the encoding needs them."""
    return lambda: [ggufs.llama_gguf(layers=1, heads=2, kv_heads=1, vocab_size=300,
                                     encoding=encoding)]  # fmt: skip


def _spelled(keys: Callable[[], dict[str | bytes, Key | ggufs.Raw]]) -> Callable[[], list[Gguf]]:
    """A tiny Llama with another tokenizer."""

    def make() -> list[Gguf]:
        return [with_vocabulary(keys())]

    return make


def with_vocabulary(keys: dict[str | bytes, Key | ggufs.Raw]) -> Gguf:
    """A tiny Llama with these tokens."""
    model = ggufs.llama_gguf(**{**_TINY, "tied": True})  # type: ignore[arg-type]
    for name in list(model.keys):
        if str(name).startswith("tokenizer.ggml."):
            model.drop(str(name))
    model.keys |= keys
    tokens = keys["tokenizer.ggml.tokens"]
    assert isinstance(tokens, Key)
    size = len(tokens.value)
    model.keys["llama.vocab_size"] = u32(size)
    data = bytes([0, 36] + [1] * 32) * size  # one block of Q8_0 for each token
    model.tensors[0] = Tensor("token_embd.weight", (32, size), 8, data)
    return model


def _vocabulary(path: Path) -> Callable[[], list[Gguf]]:
    """A tiny Llama with the tokenizer of a published model."""

    def make() -> list[Gguf]:
        keys = parsed(path.read_bytes()).keys
        return [with_vocabulary({name: value for name, value in keys.items()
                                 if str(name).startswith("tokenizer.ggml.")})]  # fmt: skip

    return make


def _templated(name: str) -> Callable[[], list[Gguf]]:
    def make() -> list[Gguf]:
        model = ggufs.llama_gguf(**_TINY)  # type: ignore[arg-type]
        model.keys["tokenizer.chat_template"] = text((templates.FOLDER / f"{name}.jinja")
                                                     .read_text())  # fmt: skip
        return [model]

    return make


@cache
def corpus() -> dict[str, Seed]:
    """All seeds of this machine, by name."""
    found: dict[str, Callable[[], list[Gguf]]] = {
        "llama": _llama(),
        "llama-bpe": _llama(vocab="bpe", tied=True),
        "llama-experts": _llama(experts=4),
        "llama-two-layers": _llama(layers=2, kv_heads=2),
        "split": lambda: ggufs.split(ggufs.llama_gguf(**_TINY), _SPLITS),  # type: ignore[arg-type]
        **{name: _written(write) for name, write in architectures.WRITERS.items()},
        **{name: _written(getattr(heads, f"write_{name}"))
           for name in ("glm4moe", "qwen35", "qwen35moe")},
        "deepseek2-heads": _written(heads.write_deepseek2),
        **{name: _written(Embedder(name).write) for name in ARCHITECTURES},
        "reranker": _written(Embedder("bert", pooling=4, classifier=2).write),
        **{f"tokenizer-{name}": _spelled(keys) for name, keys in TOKENIZERS.items()},
        **{f"encoding-{name}": _encoded(name) for name in (*ggufs.QUANTIZED, "F16", "BF16")},
    }  # fmt: skip
    for name in templates.names()[:: max(1, len(templates.names()) // 8)]:
        found[f"template-{name}"] = _templated(name)
    seeds = {name: Seed(name, make) for name, make in found.items()}
    slow = {f"vocab-{path.stem.removeprefix('ggml-vocab-')}": _vocabulary(path)
            for path in sorted(VOCABS.glob("*.gguf"))}  # fmt: skip
    slow["demo"] = lambda: [parsed(next(DEMO.glob("*.gguf")).read_bytes())]
    return seeds | {name: Seed(name, make, slow=True) for name, make in slow.items()}
