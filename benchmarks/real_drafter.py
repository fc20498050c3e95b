"""Train an EAGLE-3 drafter for a Llama with tied embeddings, such as SmolLM2, and write it as GGUF.

    .venv-reference/bin/python -m benchmarks.real_drafter MODEL.gguf TEXTS.jsonl DRAFTER.gguf

`python -m benchmarks.written MODEL.gguf TEXTS.jsonl` has the model write the texts. Each line of
them is a list of token ids. The last tenth is held out.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

import gguf
import torch
from gguf.quants import dequantize
from torch import Tensor

from benchmarks.pruned import add_field
from scripts.demo_model import gguf_file, training
from scripts.demo_model.drafter import DemoDrafter
from scripts.demo_model.model import DemoModel, Shape
from scripts.train_demo_drafter import hit_rates, train

ROWS, LENGTH = 4, 192


def llama(path: Path) -> tuple[DemoModel, gguf.GGUFReader]:
    """Return the model with its weights as they are computed with, and its file."""
    file = gguf.GGUFReader(path)

    def said(key: str) -> int | float:
        return file.fields[f"llama.{key}"].contents()

    shape = Shape(
        vocab=len(file.fields["tokenizer.ggml.tokens"].data),
        embedding=int(said("embedding_length")),
        feed_forward=int(said("feed_forward_length")),
        blocks=int(said("block_count")),
        heads=int(said("attention.head_count")),
        kv_heads=int(said("attention.head_count_kv")),
        context=int(said("context_length")),
        rope_base=said("rope.freq_base"),
        norm_epsilon=said("attention.layer_norm_rms_epsilon"),
    )
    model = DemoModel(shape)
    there = {t.name: torch.tensor(dequantize(t.data, t.tensor_type)) for t in file.tensors}
    names = {name: there[gguf_file.tensor_name(name)] for name in model.state_dict()}
    model.load_state_dict(names)
    return model.requires_grad_(requires_grad=False).eval(), file


def batches(texts: list[list[int]], seed: int) -> Iterator[Tensor]:
    """Yield [rows, length + 1] of the texts, one behind the other, in an order that changes."""
    rng, ids, size = random.Random(seed), list[int](), ROWS * (LENGTH + 1)
    while True:
        for text in rng.sample(texts, len(texts)):
            ids += text
            while len(ids) >= size:
                yield torch.tensor(ids[:size]).view(ROWS, LENGTH + 1)
                del ids[:size]


def add_vocabulary(out: gguf.GGUFWriter, file: gguf.GGUFReader) -> None:
    """Add the model's own."""
    for field in file.fields.values():
        if field.name.startswith("tokenizer.ggml."):
            add_field(out, field, field.contents())


def main() -> None:
    """Train, round, measure and write."""
    parser = argparse.ArgumentParser(description="An EAGLE-3 drafter for a real model.")
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--layers", default="2,15,27")
    parser.add_argument("--seed", type=int, default=60)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    target, file = llama(given.model)
    drafter = DemoDrafter(target, tuple(map(int, given.layers.split(","))))
    texts = [json.loads(line) for line in given.texts.read_text().splitlines()]
    held_out = texts[-len(texts) // 10 :]
    print(f"{sum(map(len, texts))} tokens", flush=True)
    train(drafter, target, batches(texts[: -len(held_out)], given.seed), given.steps)
    training.round_to_f16(drafter)
    rates = hit_rates(drafter, target, [ids[:1024] for ids in held_out])
    print("held-out hit rates of guesses in a row:", " ".join(f"{rate:.3f}" for rate in rates))
    gguf_file.write_drafter(given.out, drafter, "Drafter", lambda out: add_vocabulary(out, file))
    print(f"wrote {given.out} ({given.out.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
