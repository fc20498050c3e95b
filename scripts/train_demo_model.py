"""Train the demo model and write it, its held-out text and its card into worker/demo.

The seed fixes the text, its order, the tokenizer and the weights. On another processor, or with
another version of torch, only the last digits of the weights differ.
"""

from __future__ import annotations

import argparse
import math
from itertools import islice
from pathlib import Path

import torch

from scripts.demo_model import card, gguf_file, training
from scripts.demo_model.corpus import chat_text, documents, held_out_documents
from scripts.demo_model.model import DemoModel, Shape, parameter_count
from scripts.demo_model.tokenizer import Tokenizer
from scripts.demo_model.tokenizer import train as train_tokenizer

STEPS = 1800
HELD_OUT_BYTES = 100_000
LARGEST_FILE = 12_000_000  # bytes
TOKENIZER_DOCUMENTS = {"short": 12_000, "long": 300}
SAMPLES = (
    "Once upon a time there was a",
    "One day, Tom lost his red kite.",
    "Question: What is 23 plus 45?\nAnswer:",
)
QUESTIONS = ("What is the capital of France?", "Tell me a story about a fox.", "What can you do?")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python -m scripts.train_demo_model --steps 20 --out /tmp/demo",
    )
    parser.add_argument("--steps", type=int, default=STEPS, help=f"training steps ({STEPS})")
    parser.add_argument("--seed", type=int, default=7, help="the seed of everything (7)")
    parser.add_argument("--blocks", type=int, default=Shape.blocks, help="layers (6)")
    parser.add_argument(
        "--feed-forward",
        type=int,
        default=Shape.feed_forward,
        help="width of their inner part (768)",
    )
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (2)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).resolve().parent.parent / "worker" / "demo",
        help="folder for demo-5m-f16.gguf (or as large as it is), heldout.txt and CARD.md "
        "(worker/demo)",
    )
    return parser.parse_args()


def measure(model: DemoModel, tokenizer: Tokenizer, held_out: list[str]) -> card.Measured:
    """Return the held-out results of the weights as they are now."""
    text = "\n\n".join(held_out) + "\n"
    loss, tokens = training.held_out_loss(model, [tokenizer.document(t) for t in held_out])
    rows = training.windows(tokenizer.encode(text, special=False), tokenizer.bos, 512)
    window_loss, _ = training.held_out_loss(model, rows)
    return card.Measured(
        loss, math.exp(loss), tokens, math.exp(window_loss), len(text.encode("utf-8"))
    )


def samples(model: DemoModel, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    """Return prompts and their greedy continuations, plain ones and chats."""
    prompts = list(SAMPLES)
    prompts += [chat_text("", [(q, "")]).removesuffix("<|end|>") for q in QUESTIONS]
    return [(p, training.greedy(model, tokenizer, p)) for p in prompts]


def main() -> None:
    """Make the text, the tokenizer and the model, and write them."""
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    shape = Shape(blocks=args.blocks, feed_forward=args.feed_forward)

    print("training the tokenizer", flush=True)
    texts = [
        text
        for kind, count in TOKENIZER_DOCUMENTS.items()
        for text in islice(documents(args.seed, kind), count)
    ]
    tokenizer = train_tokenizer(texts, shape.vocab)
    held_out = held_out_documents(args.seed, HELD_OUT_BYTES)

    model = DemoModel(shape)
    parameters = parameter_count(model)
    print(f"training {parameters} parameters: {shape.text()}", flush=True)
    run = training.train(model, tokenizer, args.steps, args.seed)
    seen = {training.document_hash(text) for text in held_out} & run.document_hashes
    if seen:
        raise AssertionError(f"{len(seen)} held-out documents occur in the training text")

    training.round_to_f16(model)
    model.eval()
    held = measure(model, tokenizer, held_out)
    print(f"held-out perplexity {held.perplexity:.4f}, in windows {held.window_perplexity:.4f}")

    args.out.mkdir(parents=True, exist_ok=True)
    values = card.metadata(shape, parameters, run, held, args.seed, args.steps)
    path = args.out / f"demo-{parameters / 1e6:.0f}m-f16.gguf"
    about = {
        "name": card.title(parameters),
        "description": card.DESCRIPTION,
        "license": card.LICENSE,
        "size_label": f"{parameters / 1e6:.1f}M",
    }
    gguf_file.write(path, model, tokenizer, values, about)
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise AssertionError(f"{path} has {size} bytes, more than {LARGEST_FILE}")
    (args.out / "heldout.txt").write_text("\n\n".join(held_out) + "\n", encoding="utf-8")
    shown = samples(model, tokenizer)
    (args.out / "CARD.md").write_text(card.markdown(values, run, held, shown), encoding="utf-8")
    for prompt, text in shown:
        print(f"--- {prompt}\n>>> {text}")
    print(f"wrote {path} ({size} bytes), training took {run.minutes:.1f} minutes")


if __name__ == "__main__":
    main()
