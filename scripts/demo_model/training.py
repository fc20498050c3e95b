"""Training of the demo model, its held-out loss and greedy samples."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from scripts.demo_model.corpus import documents
from scripts.demo_model.model import DemoModel
from scripts.demo_model.tokenizer import Tokenizer


@dataclass(frozen=True)
class Stage:
    """A part of the run: its share of all steps, rows of a step, tokens of a row, kind of text."""

    share: float
    rows: int
    length: int
    kind: str


# Short rows train fastest; the long ones at the end teach the positions up to the context's end.
STAGES = (
    Stage(0.68, 16, 256, "short"),
    Stage(0.24, 4, 1024, "long"),
    Stage(0.08, 2, 2048, "long"),
)
WARM_UP = 60  # steps
MATRIX_RATE, OTHER_RATE = 8e-3, 4e-3
FINAL_RATE = 0.02  # of the highest rate


@dataclass
class Run:
    """What a training run has done; the loss in nats per token."""

    tokens_seen: int = 0
    train_loss: float = float("nan")
    minutes: float = 0.0
    document_hashes: set[bytes] = field(default_factory=set)


def document_hash(text: str) -> bytes:
    """Return a short hash of a document."""
    return hashlib.sha256(text.encode()).digest()[:12]


def batches(tokenizer: Tokenizer, stage: Stage, seed: int, run: Run) -> Iterator[Tensor]:
    """Yield ids [rows, length + 1]: training documents joined to one endless text, then cut."""
    ids: list[int] = []
    size = stage.rows * (stage.length + 1)
    # Each stage has a seed of its own, so that no document comes in two stages.
    for text in documents(seed + stage.length, stage.kind):
        run.document_hashes.update(document_hash(part) for part in text.split("\n\n"))
        ids += tokenizer.document(text)
        while len(ids) >= size:
            yield torch.tensor(ids[:size]).view(stage.rows, stage.length + 1)
            del ids[:size]


def rate_at(step: int, steps: int) -> float:
    """Return the factor of the learning rates: up in a line, then down in half a cosine."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    done = (step - WARM_UP) / max(1, steps - WARM_UP)
    return FINAL_RATE + (1 - FINAL_RATE) * 0.5 * (1 + math.cos(math.pi * done))


def optimizers(model: DemoModel) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices of the blocks and AdamW for the rest.

    Muon usually needs fewer steps than AdamW for the same loss, and a CPU makes few steps.
    """
    matrices = [p for p in model.blk.parameters() if p.ndim == 2]
    norms = [p for p in model.parameters() if p.ndim == 1]
    embedding = [model.token_embd.weight]
    return [
        torch.optim.Muon(
            matrices, lr=MATRIX_RATE, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(
            [{"params": norms, "weight_decay": 0.0}, {"params": embedding, "weight_decay": 0.02}],
            lr=OTHER_RATE,
            betas=(0.9, 0.95),
        ),
    ]


def train(model: DemoModel, tokenizer: Tokenizer, steps: int, seed: int) -> Run:
    """Train in place for ``steps`` steps and print the progress."""
    run = Run()
    makers = optimizers(model)
    highest = [[group["lr"] for group in maker.param_groups] for maker in makers]
    ends = [round(steps * sum(s.share for s in STAGES[: i + 1])) for i in range(len(STAGES))]
    losses: list[float] = []
    begin = time.monotonic()
    step = 0
    for stage, end in zip(STAGES, ends, strict=True):
        source = batches(tokenizer, stage, seed, run)
        stage_begin, stage_first = time.monotonic(), step
        while step < end:
            ids = next(source)
            for maker, rates in zip(makers, highest, strict=True):
                for group, rate in zip(maker.param_groups, rates, strict=True):
                    group["lr"] = rate * rate_at(step, steps)
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(ids[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
            model.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for maker in makers:
                maker.step()
            losses.append(loss.item())
            run.tokens_seen += stage.rows * stage.length
            step += 1
            if step % 25 == 0 or step == steps:
                now = time.monotonic()
                pace = (now - stage_begin) / (step - stage_first)
                recent = losses[-25:]
                print(
                    f"step {step}/{steps}  rows of {stage.length}  loss "
                    f"{sum(recent) / len(recent):.4f}  {run.tokens_seen / 1e6:.2f} M tokens  "
                    f"{(now - begin) / 60:.1f} min, {pace * (steps - step) / 60:.1f} to go",
                    flush=True,
                )
    last = losses[-100:]
    run.train_loss = sum(last) / len(last)
    run.minutes = (time.monotonic() - begin) / 60
    return run


@torch.no_grad()
def round_to_f16(model: nn.Module) -> None:
    """Round the matrices as the GGUF file does."""
    for p in model.parameters():
        if p.ndim == 2:
            p.copy_(p.half().float())


@torch.no_grad()
def held_out_loss(model: DemoModel, rows: list[list[int]]) -> tuple[float, int]:
    """Return nats per token and how many tokens were scored: all but the first of each row."""
    total, count = 0.0, 0
    for ids in rows:
        row = torch.tensor(ids)
        logits = model(row[None, :-1])[0]
        total += functional.cross_entropy(logits, row[1:], reduction="sum").item()
        count += len(ids) - 1
    return total / count, count


def windows(ids: list[int], bos: int, length: int) -> list[list[int]]:
    """Cut ids into rows of ``length`` tokens that begin with BOS; a shorter rest is left out."""
    size = length - 1
    return [[bos, *ids[i : i + size]] for i in range(0, len(ids) - size + 1, size)]


@torch.no_grad()
def greedy(model: DemoModel, tokenizer: Tokenizer, prompt: str, limit: int = 200) -> str:
    """Continue the prompt by the likeliest tokens until EOS, end of turn or ``limit`` tokens."""
    ids = [tokenizer.bos, *tokenizer.encode(prompt)]
    start = len(ids)
    while len(ids) - start < limit:
        best = int(model(torch.tensor(ids)[None])[0, -1].argmax())
        if best in (tokenizer.eos, tokenizer.ids["<|end|>"]):
            break
        ids.append(best)
    return tokenizer.decode(ids[start:])
