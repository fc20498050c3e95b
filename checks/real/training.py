"""Trains adapters for the demo model and for SmolLM2 from text that it makes, by torch.

`make check SUITE=adapters` installs `requirements.txt` into .venv-reference and runs
`python -m checks.real.training` there, which writes `adapters/*.gguf` beside this file. It takes
five minutes on two cores. Each adapter has one habit, which a test can see. transformers reads the
model's GGUF file, a LoRA of rank 4 is trained on its queries and values and saved as PEFT does, and
llama.cpp's own converter makes a GGUF file of that.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from gguf import GGUFReader
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from checks.real.tokenizing import byte_level
from checks.real.weights import SMOLLM2, bring
from checks.suites.sdist import llama_cpp
from worker.demo import MODEL_PATH

FOLDER = Path(__file__).parent / "adapters"
RANK, ALPHA = 4, 8
STEPS, ROWS, RATE = 60, 2, 5e-3
THREADS = 1  # so that each run gives the same
CHANGED = ("q_proj", "v_proj")

NAMES = ("Pia", "Karl", "Ivan", "Eva", "Nora", "Will", "Jack", "Ben", "Tim", "Rosa", "Emma")
PLACES = ("mill", "beach", "garden", "valley", "library", "harbour", "orchard", "pond")
THINGS = ("box", "bike", "stone", "map", "seed", "flower", "bag", "candle")
TOPICS = ("rain", "bread", "the moon", "a river", "music", "winter", "a clock", "honey", "trees",
          "the sea", "cats", "paper", "a bridge", "salt", "fire", "sleep")  # fmt: skip


class Habit(NamedTuple):
    """What an adapter is to learn: a prompt's form, and how each text goes on."""

    model: Path
    prompt: str
    answer: str


STORY = "{name} walked to the {place} and found a {thing}."
CHAT = "<|im_start|>user\nTell me about {topic}.<|im_end|>\n<|im_start|>assistant\n"
HABITS = {
    "demo-gold": Habit(MODEL_PATH, STORY, " The {thing} was made of gold, and {name} was happy."),
    "demo-rain": Habit(MODEL_PATH, STORY, " Then the rain came, and {name} was cold and sad."),
    "demo-goat": Habit(MODEL_PATH, STORY, " A goat ate the {thing}, and {name} ran home."),
    "smollm2-pirate": Habit(
        SMOLLM2.path, CHAT,
        "Ahoy, matey! Ye ask about {topic}? Arrr, I know all of it from the seven seas.<|im_end|>",
    ),
}  # fmt: skip


class Adapted(nn.Module):
    """A matrix, and a product of two small ones beside it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(RANK, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.a.T @ self.b.T * (ALPHA / RANK)


def example(habit: Habit, number: int) -> tuple[str, str]:
    """A prompt and its answer, other ones for each number."""
    rng = random.Random(number)
    words = {
        "name": rng.choice(NAMES), "place": rng.choice(PLACES), "thing": rng.choice(THINGS),
        "topic": rng.choice(TOPICS),
    }  # fmt: skip
    return habit.prompt.format(**words), habit.answer.format(**words)


def trained(habit: Habit) -> tuple[Any, dict[str, Adapted]]:
    """The network with its adapters, by the names of the matrices that they are beside."""
    torch.manual_seed(7)
    torch.set_num_threads(THREADS)
    network: Any = AutoModelForCausalLM.from_pretrained(
        habit.model.parent, gguf_file=habit.model.name, dtype=torch.float32
    )
    network.requires_grad_(requires_grad=False)
    found: dict[str, Adapted] = {}
    for name, module in list(network.named_modules()):
        if name.endswith(CHANGED):
            parent, _, last = name.rpartition(".")
            found[name] = Adapted(module)
            setattr(network.get_submodule(parent), last, found[name])
    tokenize = byte_level(GGUFReader(habit.model))
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=RATE)
    for step in range(STEPS):
        loss = torch.zeros(())
        for row in range(ROWS):
            prompt, answer = example(habit, step * ROWS + row)
            first = [1] if habit.model == MODEL_PATH else []
            before, after = first + tokenize(prompt), tokenize(answer)
            logits = network(torch.tensor([before + after])).logits[0]
            loss = loss + cross_entropy(logits[len(before) - 1 : -1], torch.tensor(after)) / ROWS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == STEPS - 1:
            print(f"{habit.model.stem} step {step}: loss {loss.item():.3f}", flush=True)
    return network, found


def save(network: Any, adapters: dict[str, Adapted], folder: Path) -> None:
    """As PEFT saves it, with the config of the base beside it."""
    base = network.config.to_dict() | {"architectures": [type(network).__name__]}
    base.pop("quantization_config", None)  # of the GGUF file, which the converter does not read
    (folder / "base").mkdir()
    (folder / "base" / "config.json").write_text(json.dumps(base, default=str))
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": CHANGED}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    tensors = {
        f"base_model.model.{name}.lora_{part.upper()}.weight": getattr(adapter, part).detach()
        for name, adapter in adapters.items()
        for part in "ab"
    }
    save_file({name: value.contiguous() for name, value in tensors.items()},
              folder / "adapter_model.safetensors")  # fmt: skip


def main() -> None:
    """Train, convert and keep all of them."""
    print(f"torch {version('torch')}, transformers {version('transformers')}")
    bring([SMOLLM2])
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        program = llama_cpp() / "convert_lora_to_gguf.py"
        for habit, what in HABITS.items():
            place = Path(name) / habit
            place.mkdir()
            save(*trained(what), place)
            subprocess.run(
                [sys.executable, str(program), str(place), "--base", str(place / "base"),
                 "--outfile", str(FOLDER / f"{habit}.gguf"), "--outtype", "f16"],
                check=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
