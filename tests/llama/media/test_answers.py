"""A served model says to media what it says row by row, see `reference`."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from tests.llama.media.reference import media_reference
from tests.support.models.projectors import SEEING, png
from tests.support.programs.processes import serving

COUNT = 12
# Text, and pictures by width, height and seed: one; one of another size; the same one twice, with
# text between; two beside each other.
Shown = tuple[str | tuple[int, int, int], ...]
SHOWN: dict[str, Shown] = {
    "one": ((28, 28, 0), "what is it?"),
    "wide": ("see ", (84, 28, 1)),
    "twice": ((28, 28, 0), "and", (28, 28, 0), "what is it?"),
    "two": ("a", (28, 28, 2), (56, 84, 3), "b"),
}


def parts_of(shown: Shown) -> list[dict[str, Any]]:
    """As a chat's parts."""
    return [
        {"type": "text", "text": each}
        if isinstance(each, str)
        else {
            "type": "image_url",
            "image_url": {"url": f"data:image/png;base64,{b64encode(png(*each)).decode()}"},
        }
        for each in shown
    ]


@pytest.mark.mtmd
@pytest.mark.parametrize("name", SEEING)
def test_pictures(tmp_path: Path, name: str) -> None:
    """The same tokens, and log-probabilities as near as floats of 16 bits in the cells allow; the
    second time from cells that the first left."""
    model, projector = SEEING[name](tmp_path)
    expected: dict[str, list[tuple[bytes, float]]] = {}
    with media_reference(model, projector) as reference:
        for key, shown in SHOWN.items():
            text = "".join(each if isinstance(each, str) else "\0" for each in shown)
            media = [png(*each) for each in shown if not isinstance(each, str)]
            expected[key] = reference.answer(f"<|user|>{text}<|assistant|>", media, COUNT)
    with serving("--model", model, "--ctx-size", "2048") as server:
        for key, shown in [*SHOWN.items(), *SHOWN.items()]:
            body = {
                "messages": [{"role": "user", "content": parts_of(shown)}],
                "temperature": 0,
                "max_tokens": COUNT,
                "logprobs": True,
            }
            answer = server.post(body, "/v1/chat/completions")
            assert answer.status_code == 200, answer.text
            told = answer.json()["choices"][0]["logprobs"]["content"]
            tokens = [bytes(each["bytes"]) for each in told]
            assert tokens == [piece for piece, _ in expected[key]], key
            for each, (_, logprob) in zip(told, expected[key], strict=True):
                assert each["logprob"] == pytest.approx(logprob, abs=2e-3), key
