"""The acceptance list that the original worker never passed, over the real process.

It runs on the demo model everywhere and on each model that `worker-test.toml` names.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support import here
from tests.support.models.reference import ReferenceLlama, log_softmax
from tests.support.programs.processes import Server, serving
from worker.demo import MODEL_PATH
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights

PROMPT = "Once upon a time"
# In the demo model's own chat format, whose end of turn is the end of generation.
QUESTION = "<|user|>\nWhat is the capital of France?<|end|>\n<|assistant|>\n"
# Perplexity of text that a model finds natural; noise of the same tokens is far above.
NATURAL = 20.0


@pytest.fixture(scope="module", params=[MODEL_PATH, *here.extra_models()], ids=lambda p: p.stem)
def model(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(scope="module")
def running(model: Path) -> Generator[Server]:
    with serving("--model", model, "--ctx-size", "4096") as server:
        yield server


def complete(server: Server, **fields: Any) -> dict[str, Any]:
    answer = server.post({"prompt": PROMPT, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def text_of(answer: dict[str, Any]) -> str:
    return answer["choices"][0]["text"]


def scores_of(server: Server, text: str) -> list[float]:
    """ln p of the text's tokens but the first, by the running worker."""
    answer = complete(server, prompt=text, max_tokens=0, echo=True, logprobs=0)
    return answer["choices"][0]["logprobs"]["token_logprobs"][1:]


def perplexity(server: Server, text: str) -> float:
    """exp of the mean negative ln p of the text's tokens but the first."""
    scores = scores_of(server, text)
    return math.exp(-sum(scores) / len(scores))


def test_loads(running: Server, model: Path) -> None:
    """The model loads and says of itself what the file says."""
    health = running.health()
    assert health["status"] == "ok"
    assert health["model"] == model.stem
    assert health["quant_kind"] != "unknown"


def test_a_hundred_tokens_that_are_no_gibberish(running: Server) -> None:
    """100 sampled tokens read as text: likely to the model, and far likelier than shuffled."""
    answer = complete(running, max_tokens=120, min_tokens=100, temperature=0.7, seed=1)
    assert answer["usage"]["completion_tokens"] >= 100
    text = PROMPT + text_of(answer)
    words = text.split(" ")
    random.Random(1).shuffle(words)
    natural, noise = perplexity(running, text), perplexity(running, " ".join(words))
    print(f"\nperplexity {natural:.2f}, its words shuffled {noise:.0f}: {text[:300]!r}")
    assert natural < NATURAL
    assert noise > 5 * natural


def test_the_reference_reads_it_too(running: Server, model: Path) -> None:
    """An independent forward pass finds the generated text as likely as the engine does."""
    if model != MODEL_PATH:
        pytest.skip("the numpy reference is for the small model")
    text = PROMPT + text_of(complete(running, max_tokens=100, temperature=0))
    ids = ids_of(model, text)
    reference = log_softmax(ReferenceLlama(model).forward(ids).logits)
    # The worker's scores begin at the second token of the text, which is the third with BOS.
    expected = [float(reference[i - 1, ids[i]]) for i in range(2, len(ids))]
    assert len(expected) > 80
    assert scores_of(running, text) == pytest.approx(expected, abs=0.05)


def ids_of(model: Path, text: str) -> list[int]:
    """The text's ids by the model's own vocabulary, BOS included."""
    with Weights(model, LoadOptions(vocab_only=True)) as weights:
        return Vocab(weights.handle, 4096).tokenize(text, add_special=True, parse_special=False)


def test_greedy_repeats(running: Server) -> None:
    """Temperature 0 gives the same text each time."""
    # So few tokens that no two are nearly as likely: roundings depend on what the cache held.
    texts = {text_of(complete(running, max_tokens=30, temperature=0)) for _ in range(3)}
    assert len(texts) == 1


def test_temperature_varies(running: Server, model: Path) -> None:
    """Temperature 1 gives other texts for other seeds and the same for the same."""
    # A toss between two tokens is not decided by roundings.
    one, other = (ids_of(model, text)[-1] for text in ("a", "b"))
    tossed = {"temperature": 1, "max_tokens": 40, "logit_bias": {one: 100, other: 100}}
    texts = [text_of(complete(running, seed=seed, **tossed)) for seed in (1, 2, 3, 1)]
    assert len(set(texts[:3])) > 1
    assert texts[0] == texts[3]


def test_eos_stops(running: Server, model: Path) -> None:
    """The model's own end of generation ends a text before max_tokens."""
    prompt = QUESTION if model == MODEL_PATH else "Question: What is 2 + 2?\nAnswer:"
    answer = complete(running, prompt=prompt, max_tokens=1_500, temperature=0)
    print(f"\n{answer['choices'][0]['text']!r}")
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert 1 < answer["usage"]["completion_tokens"] < 1_500


def test_max_tokens_stops(running: Server) -> None:
    """max_tokens ends a text at exactly that many tokens."""
    answer = complete(running, max_tokens=17, ignore_eos=True)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 17


@pytest.mark.parametrize("length", [1, 100, 1_000])
def test_prompt_lengths(running: Server, model: Path, length: int) -> None:
    """Prompts of 1, 100 and 1,000 tokens are read whole and continued."""
    text = "Tom has a red ball. He gave it to Anna. " * 150
    ids = ids_of(model, text)[:length]
    answer = complete(running, prompt=ids, max_tokens=20, ignore_eos=True, temperature=0)
    assert answer["usage"]["prompt_tokens"] == length
    assert answer["usage"]["completion_tokens"] == 20
    assert answer["timings"]["prompt_n"] + answer["timings"]["cache_n"] == length


def test_speed_and_memory_are_measured(running: Server) -> None:
    """Tokens per second and resident memory are reported, and are what they say."""
    answer = complete(running, max_tokens=100, ignore_eos=True)
    timings, memory = answer["timings"], running.health()["memory_bytes"]
    print(
        f"\n{timings['prompt_per_second']:.0f} prompt tokens/s, "
        f"{timings['predicted_per_second']:.0f} tokens/s, {memory / 1e6:.0f} MB resident"
    )
    assert timings["predicted_n"] == 100
    assert timings["predicted_per_second"] == pytest.approx(
        99 / (timings["predicted_ms"] / 1e3), rel=1e-6
    )
    assert memory > 10_000_000
