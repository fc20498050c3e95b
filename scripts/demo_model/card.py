"""The model card, as GGUF metadata and as CARD.md."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.demo_model.model import Shape
from scripts.demo_model.training import Run

DESCRIPTION = (
    "A very small language model that tells simple stories, answers simple questions and does "
    "small sums. Made for trying out and testing, not for knowledge."
)
LICENSE = "CC0-1.0"
DATA = (
    "English text from the grammars of scripts/demo_model: small stories, questions about them, "
    "fact tables, arithmetic, chats. No text by others. One pass; held-out documents are chosen by "
    "the hash of their text, and one pair of numbers in sixteen is never added up in training."
)


@dataclass(frozen=True)
class Measured:
    """Results on the held-out text: `loss` in nats per token, `tokens` scored, `bytes` of text."""

    loss: float
    perplexity: float
    tokens: int
    window_perplexity: float
    bytes: int


def title(parameters: int) -> str:
    """The model's name."""
    return f"Demo Tales {parameters / 1e6:.0f}M"


def metadata(
    shape: Shape, parameters: int, run: Run, held: Measured, seed: int, steps: int
) -> dict[str, str | int | float]:
    """Return the values under ``worker.card.``."""
    is_usual = shape == Shape()
    own_shape = "" if is_usual else f" --blocks {shape.blocks} --feed-forward {shape.feed_forward}"
    return {
        "shape": f"{shape.text()}, {parameters} parameters",
        "data": DATA,
        "training": (
            f"{steps} steps of 4096 tokens on a CPU, rows of 256, then 1024, then 2048 tokens; "
            "Muon and AdamW, one half cosine, bfloat16 arithmetic"
        ),
        "script": f"scripts/train_demo_model.py --steps {steps} --seed {seed}{own_shape}",
        "seed": seed,
        "tokens_seen": run.tokens_seen,
        "parameters": parameters,
        "train_loss": run.train_loss,
        "heldout_loss": held.loss,
        "heldout_perplexity": held.perplexity,
        "heldout_tokens": held.tokens,
        "heldout_window_perplexity": held.window_perplexity,
        "heldout_method": (
            "heldout.txt, F16 weights, per token: each document alone, from BOS to EOS; for "
            "heldout_window_perplexity the whole file as one text in windows of 512 tokens that "
            "begin with BOS, every token behind BOS scored"
        ),
    }


def markdown(
    card: dict[str, str | int | float], run: Run, held: Measured, samples: list[tuple[str, str]]
) -> str:
    """Return the text of CARD.md."""
    shown = "\n".join(
        f"**Prompt**\n\n```\n{prompt.rstrip()}\n```\n\n**Continuation**\n\n```\n{text.strip()}\n```\n"
        for prompt, text in samples
    )
    return f"""# {title(int(card["parameters"]))}

{DESCRIPTION}

This file is written by `{card["script"]}`, which also writes the model and the held-out text. The
same facts stand in the model file's metadata under `worker.card.`.

| | |
|---|---|
| Shape | {card["shape"]} |
| Tokenizer | byte-level BPE, one token per digit, BOS and EOS, chat markers |
| Training | {card["training"]} |
| Tokens seen | {run.tokens_seen} |
| Training time | {run.minutes:.0f} minutes of wall time, two CPU threads |
| Training loss | {run.train_loss:.4f} nats per token (mean of the last 100 steps) |
| Held-out loss | {held.loss:.4f} nats per token |
| Held-out perplexity | {held.perplexity:.4f} per token (F16 weights, {held.tokens} tokens) |
| The same in windows of 512 | {held.window_perplexity:.4f} |
| Licence | {LICENSE} |

## Data

{card["data"]}

## Held-out text

`heldout.txt` ({held.bytes} bytes) holds plain documents parted by one empty line; no document has
an empty line inside, and none occurs in the training text. There are no chats in it, since a plain
text cannot hold special tokens. Perplexity is measured in two ways. By document: every document
alone, BOS in front, EOS behind, every token but BOS scored. In windows: the whole file as one text,
cut into windows of 512 tokens (BOS and 511 tokens of the text), every token but BOS scored, a
shorter rest left out. The model has seen texts joined by empty lines in training, so both are fair.

## What it can and cannot do

It writes English sentences that fit together in form, in the small vocabulary of its stories. It
does not follow who is who: names, colours and things change in the middle of a story, and questions
about a story in the prompt are mostly answered wrong. Of the script's own tables (animals, days,
opposites, some capitals) it knows most, of sums up to 99 less than half. Plain text often goes on
after a story's end instead of stopping; chat answers stop. It knows nothing else: other questions
get an answer in the right form with the wrong content. Do not use it for anything that matters.

## Samples

Greedy continuations by the trained weights, as measured by the script.

{shown}"""
