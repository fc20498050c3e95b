"""What torch and transformers compute of the real weights, to hold the worker against.

`make check SUITE=reference` brings the weights, installs `requirements.txt` into .venv-reference
and runs `python -m checks.real.reference` there, which writes `smollm2.json` and `gemma3.json`
beside this file: token ids, log-probabilities and versions, nothing of the weights. It takes ten
minutes.

transformers reads the GGUF file, which dequantises it to float32, and computes on a CPU in float32
with its own attention. Nothing of llama.cpp takes part. Tokens are those of `tokenizing.py`, which
says why not of transformers.

llama.cpp rounds what a matrix multiplies to 8 bits, torch does not. How much that moves the
log-probabilities is computed here too: the same pass with each matrix's input rounded to blocks as
llama.cpp has them. The tests' tolerances are multiples of it (`values.py`). For a model with a
window the pass without its window says what must not slip through these.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from checks.real.chats import CHATS
from checks.real.texts import PROMPTS, texts
from checks.real.tokenizing import byte_level, sentence_piece
from checks.real.values import TAIL
from checks.real.weights import GEMMA3, SMOLLM2, RealWeights

HERE = Path(__file__).parent
LIBRARIES = ("torch", "transformers", "gguf", "tokenizers", "sentencepiece")
TEXT_TOKENS = 4_000
POSITIONS = 200
LONG = ((100, 800), (2_000, 2_700))  # prompts that are parts of the text
GREEDY_TOKENS = 64
TOP = 5
WINDOW = 512
DISTURBANCE = 1e-3  # of a value: two steps of a number of 16 bits
DISTURBED_PASSES = 16


def blocks(model: RealWeights, width: int) -> int:
    """How many values llama.cpp rounds with one scale: 256 for K-quants, else 32."""
    return 256 if model is GEMMA3 and width % 256 == 0 else 32


@contextmanager
def rounded(network: nn.Module, model: RealWeights, seed: int | None = None) -> Iterator[None]:
    """Inside, what each matrix multiplies is rounded to 8 bits; with a seed after a disturbance."""
    generator = torch.Generator().manual_seed(seed or 0)

    def hook(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (values,) = given
        parts = values.unflatten(-1, (-1, blocks(model, values.shape[-1])))
        scale = parts.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
        if seed is not None:
            parts = parts * (1 + DISTURBANCE * torch.randn(parts.shape, generator=generator))
        return (((parts / scale).round() * scale).flatten(-2),)

    hooks = [m.register_forward_pre_hook(hook) for m in network.modules() if type(m) is nn.Linear]
    try:
        yield
    finally:
        for each in hooks:
            each.remove()


@contextmanager
def unwindowed(network: PreTrainedModel) -> Iterator[None]:
    """Inside, layers with a window see everything."""
    config = network.config
    kept, config.sliding_window = config.sliding_window, 1 << 20
    try:
        yield
    finally:
        config.sliding_window = kept


@torch.inference_mode()
def logprobs(network: PreTrainedModel, ids: list[int]) -> Iterator[Tensor]:
    """Log-probabilities after each of the tokens, some rows [n, vocab_size] at a time."""
    hidden = network.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]
    for rows in hidden.split(128):
        yield network.lm_head(rows).log_softmax(-1)


def top(rows: Tensor, places: list[int]) -> list[dict[str, list[Any]]]:
    """The likeliest tokens of rows [n, vocab_size], with their log-probabilities."""
    values, ids = rows[places].topk(TOP)
    return [
        {"ids": i, "logprobs": [round(v, 4) for v in each]}
        for each, i in zip(values.tolist(), ids.tolist(), strict=True)
    ]


def greedy(network: PreTrainedModel, model: RealWeights, prompt: list[int]) -> dict[str, Any]:
    """The likeliest continuation; its rows are computed once more in one pass without a cache."""
    with torch.inference_mode():
        whole = network.generate(
            torch.tensor([prompt]), do_sample=False, max_new_tokens=GREEDY_TOKENS,
            min_new_tokens=GREEDY_TOKENS, pad_token_id=0, eos_token_id=-1,
        )[0].tolist()  # fmt: skip

    def rows() -> Tensor:
        return torch.cat(list(logprobs(network, whole)))[len(prompt) - 1 : -1]

    exact = rows()
    assert exact.argmax(-1).tolist() == whole[len(prompt) :], "generate took another way"
    values, ids = exact.topk(TOP)
    near = values > TAIL
    shifts = torch.zeros(GREEDY_TOKENS)
    for seed in range(DISTURBED_PASSES):
        with rounded(network, model, seed):
            by = (rows().gather(-1, ids) - values).abs() * near
        shifts = shifts.maximum(by.amax(-1))
    steps = top(exact, list(range(GREEDY_TOKENS)))
    return {
        "prompt": prompt,
        "steps": [
            step | {"shift": round(shift, 4)}
            for step, shift in zip(steps, shifts.tolist(), strict=True)
        ],
    }


def scored(network: PreTrainedModel, ids: list[int]) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the text's own tokens [n - 1], and whole rows at all POSITIONS."""
    wanted = positions()
    own: list[Tensor] = []
    rows: list[Tensor] = []
    start = 0
    for part in logprobs(network, ids):
        following = torch.tensor(ids[start + 1 : start + 1 + len(part)])
        own.append(part[: len(following)].gather(-1, following[:, None])[:, 0])
        rows += [part[place - start] for place in wanted if 0 <= place - start < len(part)]
        start += len(part)
    return torch.cat(own), torch.stack(rows)


def positions() -> list[int]:
    """A quarter inside of Gemma's window, the others beyond it."""
    inside = [round(3 + at * (WINDOW - 8) / 49) for at in range(50)]
    beyond = [round(WINDOW + at * (TEXT_TOKENS - WINDOW - 2) / 149) for at in range(150)]
    return inside + beyond


def difference(exact: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> dict[str, float]:
    """How far other rows are from the exact ones: over the likeliest tokens, and of the mean."""
    ids = exact[1].topk(TOP).indices
    by = (other[1].gather(-1, ids) - exact[1].gather(-1, ids)).abs()
    return {
        "rms": round(math.sqrt(by.square().mean().item()), 5),
        "largest": round(by.max().item(), 5),
        "mean_logprob": round((other[0].mean() - exact[0].mean()).item(), 5),
    }


def values_of(model: RealWeights) -> dict[str, Any]:
    """All that is kept of one model."""
    file = GGUFReader(model.path)
    tokenize = byte_level(file) if model is SMOLLM2 else sentence_piece(file)
    begin = [2] if model is GEMMA3 else []
    text = (begin + tokenize((HERE / "text.txt").read_text()))[:TEXT_TOKENS]
    prompts = [begin + tokenize(prompt) for prompt in PROMPTS]
    prompts += [begin + text[first:last] for first, last in LONG]
    network = AutoModelForCausalLM.from_pretrained(
        model.path.parent, gguf_file=model.path.name, dtype=torch.float32,
        attn_implementation="eager",
    ).eval()  # fmt: skip
    exact = scored(network, text)
    with rounded(network, model):
        differences = {"rounded": difference(exact, scored(network, text))}
    if model is GEMMA3:
        with unwindowed(network):
            differences["unwindowed"] = difference(exact, scored(network, text))
    chats: list[list[int]] = []
    if model is SMOLLM2:
        template = AutoTokenizer.from_pretrained(model.path.parent, gguf_file=model.path.name)
        chats = [
            tokenize(template.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
            for chat in CHATS
        ]
    return {
        "file": model.path.name,
        "sha256": model.sha256,
        "versions": {name: version(name) for name in LIBRARIES}
        | {"python": platform.python_version()},
        "tokens": [tokenize(each) for each in texts()],
        "text": text,
        "mean_logprob": round(exact[0].double().mean().item(), 5),
        "positions": positions(),
        "scores": top(exact[1], list(range(POSITIONS))),
        "differences": differences,
        "greedy": [greedy(network, model, prompt) for prompt in prompts],
        "chats": chats,
    }


def main() -> None:
    """Write the values of both models."""
    for name, model in (("smollm2", SMOLLM2), ("gemma3", GEMMA3)):
        found = values_of(model)
        lines = ",\n".join(
            f'"{key}": {json.dumps(value, separators=(",", ":"))}' for key, value in found.items()
        )
        (HERE / f"{name}.json").write_text(f"{{\n{lines}\n}}\n")
        print(name, found["mean_logprob"], found["differences"])


if __name__ == "__main__":
    main()
