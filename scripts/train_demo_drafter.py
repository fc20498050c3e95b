"""Train an EAGLE-3 drafter for the demo model, and write it as GGUF.

The text is what the demo model was trained with, from another seed; what the drafter has to say is
what the model says of it. The seed fixes all: with one thread, the same processor and the same
torch the file is the same.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from gguf import GGUFReader
from torch import Tensor
from torch.nn import functional

from scripts.demo_model import gguf_file, training
from scripts.demo_model.corpus import held_out_documents
from scripts.demo_model.drafter import DemoDrafter
from scripts.demo_model.model import DemoModel, Shape
from scripts.demo_model.tokenizer import Tokenizer
from worker.demo import MODEL_PATH

LAYERS = (1, 3, 5)
STEPS, ROWS, LENGTH = 300, 8, 192
DEPTH = 4  # guesses in a row
LATER = 0.8  # weight of a guess, of that of the one before
MATRIX_RATE, NORM_RATE = 1e-2, 4e-3
HELD_OUT_BYTES = 30_000


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="the file to write")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"training steps ({STEPS})")
    parser.add_argument("--seed", type=int, default=60, help="the seed of everything (60)")
    return parser.parse_args()


def demo_model() -> tuple[DemoModel, Tokenizer]:
    """Return the model that comes with the worker."""
    file = GGUFReader(MODEL_PATH)
    model = DemoModel(Shape())
    there = {tensor.name: torch.tensor(tensor.data).float() for tensor in file.tensors}
    model.load_state_dict({name: there[gguf_file.tensor_name(name)] for name in model.state_dict()})
    model.requires_grad_(requires_grad=False)
    merges = file.fields["tokenizer.ggml.merges"].contents()
    first, second = zip(*(merge.split(" ") for merge in merges), strict=True)
    return model.eval(), Tokenizer(list(zip(first, second, strict=True)))


def guesses(
    drafter: DemoDrafter, target: DemoModel, ids: Tensor, depth: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for each guess its logits, and what the model gives the same tokens."""
    with torch.no_grad():
        read, said = drafter.read(target, ids)
        said = said.float().softmax(-1)
        embedded = target.token_embd(ids[:, 1:])
    made = drafter(read[:, :-1], embedded, target.token_embd.weight, depth)
    for guess, logits in enumerate(made):
        yield logits[:, guess:], said[:, guess + 1 :]


def train(drafter: DemoDrafter, target: DemoModel, source: Iterator[Tensor], steps: int) -> None:
    """Train in place and print the progress."""
    matrices = [p for p in drafter.parameters() if p.ndim == 2]
    norms = [p for p in drafter.parameters() if p.ndim == 1]
    makers = [
        torch.optim.Muon(matrices, lr=MATRIX_RATE, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(norms, lr=NORM_RATE, weight_decay=0.0),
    ]
    begin = time.monotonic()
    for step in range(steps):
        for maker, rate in zip(makers, (MATRIX_RATE, NORM_RATE), strict=True):
            for group in maker.param_groups:
                group["lr"] = rate * training.rate_at(step, steps)
        loss, losses = torch.zeros(()), list[float]()
        with torch.autocast("cpu", torch.bfloat16):
            for guess, (made, said) in enumerate(guesses(drafter, target, next(source), DEPTH)):
                there = functional.cross_entropy(made.flatten(0, 1).float(), said.flatten(0, 1))
                losses.append(there.item())
                loss = loss + LATER**guess * there
        drafter.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        for maker in makers:
            maker.step()
        if step % 20 == 19:
            now = (time.monotonic() - begin) / 60
            shown = " ".join(f"{each:.3f}" for each in losses)
            print(f"step {step + 1}/{steps}  loss {shown}  {now:.1f} min", flush=True)


@torch.no_grad()
def hit_rates(drafter: DemoDrafter, target: DemoModel, rows: list[list[int]]) -> list[float]:
    """Return how often the likeliest token of each guess is the model's, after right ones."""
    hits, counts = torch.zeros(DEPTH), torch.zeros(DEPTH)
    for ids in rows:
        reached = torch.ones(len(ids) - 1, dtype=torch.bool)
        for guess, (made, said) in enumerate(guesses(drafter, target, torch.tensor([ids]), DEPTH)):
            right = made[0].argmax(-1) == said[0].argmax(-1)
            reached = reached[: len(right)] if not guess else reached[:-1]
            counts[guess] += reached.sum()
            reached = reached & right
            hits[guess] += reached.sum()
    return (hits / counts).tolist()


def main() -> None:
    """Train, round, measure and write."""
    args = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    target, tokenizer = demo_model()
    drafter = DemoDrafter(target, LAYERS)
    stage = training.Stage(1.0, ROWS, LENGTH, "short")
    train(
        drafter, target, training.batches(tokenizer, stage, args.seed, training.Run()), args.steps
    )
    training.round_to_f16(drafter)
    held_out = [tokenizer.document(t) for t in held_out_documents(args.seed, HELD_OUT_BYTES)]
    rates = hit_rates(drafter, target, held_out)
    print("held-out hit rates of guesses in a row:", " ".join(f"{rate:.3f}" for rate in rates))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    vocabulary = partial(gguf_file.add_vocabulary, tokenizer=tokenizer)
    gguf_file.write_drafter(args.out, drafter, "Demo drafter", vocabulary)
    print(f"wrote {args.out} ({args.out.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
