"""A served model says to media what it says row by row, see `reference`."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from tests.support.models.projectors import SEEING, png, wav, write_hearing
from tests.support.programs.processes import serving

COUNT = 12
# Text, and media as bytes: one; one of another size; the same one twice, with text between; two
# beside each other.
Shown = tuple[str | bytes, ...]
PICTURES: dict[str, Shown] = {
    "one": (png(), "what is it?"),
    "wide": ("see ", png(84, 28, 1)),
    "twice": (png(), "and", png(), "what is it?"),
    "two": ("a", png(28, 28, 2), png(56, 84, 3), "b"),
}
SOUNDS: dict[str, Shown] = {
    "one": (wav(), "what is it?"),
    "long": ("hear ", wav(100_001, 4)),
    "twice": (wav(), "and", wav(), "what is it?"),
    "two": ("a", wav(1919, 2), wav(1921, 3), "b"),
}


def part_of(shown: str | bytes) -> dict[str, Any]:
    """As a chat has it."""
    if isinstance(shown, str):
        return {"type": "text", "text": shown}
    data = b64encode(shown).decode()
    if shown.startswith(b"RIFF"):
        return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def check_answers(model: Path, projector: Path, cases: dict[str, Shown]) -> None:
    """The same tokens, and log-probabilities as near as floats of 16 bits in the cells allow; the
    second time from cells that the first left."""
    from tests.llama.media.reference import media_reference  # which loads libmtmd, if it is there

    expected: dict[str, list[tuple[bytes, float]]] = {}
    with media_reference(model, projector) as reference:
        for key, shown in cases.items():
            text = "".join(each if isinstance(each, str) else "\0" for each in shown)
            media = [each for each in shown if isinstance(each, bytes)]
            expected[key] = reference.answer(f"<|user|>{text}<|assistant|>", media, COUNT)
    with serving("--model", model, "--ctx-size", "2048") as server:
        for key, shown in [*cases.items(), *cases.items()]:
            body = {
                "messages": [{"role": "user", "content": list(map(part_of, shown))}],
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


@pytest.mark.mtmd
@pytest.mark.parametrize("name", SEEING)
def test_pictures(tmp_path: Path, name: str) -> None:
    """Of each shape."""
    check_answers(*SEEING[name](tmp_path), PICTURES)


@pytest.mark.mtmd
def test_sounds(tmp_path: Path) -> None:
    """Of a part of a vector, of one vector and of many."""
    check_answers(*write_hearing(tmp_path), SOUNDS)
