"""Tokens of 500 texts, and of a long one, beside tokenizers of others."""

from __future__ import annotations

from checks.real.conftest import Real
from checks.real.texts import COUNT, texts
from checks.real.values import HERE
from tests.support import http
from tests.support.programs.processes import Server


def tokens_of(server: Server, text: str) -> list[int]:
    """Token ids without BOS."""
    answer = server.post({"content": text, "parse_special": False}, "/tokenize")
    assert answer.status_code == 200, answer.text
    return answer.json()["tokens"]


def test_texts(server: Server, real: Real) -> None:
    """Each text in 20 scripts, mixed ones, code, emoji, blanks and controls: the same ids."""
    expected = dict(zip(texts(), real.values.tokens, strict=True))
    assert len(expected) == COUNT
    got = {text: tokens_of(server, text) for text in expected}
    assert {t: ids for t, ids in got.items() if ids != expected[t]} == {}


def test_texts_come_back(server: Server, real: Real) -> None:
    """What the reference's ids spell is the text that they were made of."""
    for text, ids in zip(texts(), real.values.tokens, strict=True):
        answer = http.post(server.url + "/detokenize", json={"tokens": ids})
        assert answer.json()["content"] == text


def test_a_long_text(server: Server, real: Real) -> None:
    """The text that is scored has the reference's ids, with BOS where the model wants one."""
    text = (HERE / "text.txt").read_text()
    answer = server.post({"content": text, "add_special": True}, "/tokenize").json()
    assert answer["tokens"][: len(real.values.text)] == real.values.text
