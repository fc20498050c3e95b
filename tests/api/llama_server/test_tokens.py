"""Tokenising over HTTP, in llama-server's words and in vLLM's."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.support import http
from tests.support.models import ggufs
from tests.support.programs.processes import Server, serving
from worker.limits import TEXT, TOKENS

BOS = 1


@pytest.fixture(scope="module")
def splitting(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A BPE model whose texts llama.cpp splits by the expressions that recurse most deeply."""
    model = ggufs.llama_gguf(vocab="bpe", context=2048)
    model.keys["tokenizer.ggml.pre"] = ggufs.text("deepseek-v3")
    path = model.write(tmp_path_factory.mktemp("models") / "bpe.gguf")
    with serving("--model", path, "-c", "2048") as server:
        yield server


def tokenize(server: Server, **body: Any) -> dict[str, Any]:
    answer = server.post(body, "/tokenize")
    assert answer.status_code == 200, answer.text[:300]
    return answer.json()


def detokenize(server: Server, tokens: list[int]) -> str:
    answer = server.post({"tokens": tokens}, "/detokenize")
    assert answer.status_code == 200, answer.text[:300]
    assert answer.json()["content"] == answer.json()["prompt"]
    return str(answer.json()["content"])


def test_content_has_no_bos(server: Server) -> None:
    """llama-server's `content` gets what it asks for: BOS only with add_special."""
    plain = tokenize(server, content="Hello you")["tokens"]
    assert BOS not in plain
    assert tokenize(server, content="Hello you", add_special=True)["tokens"] == [BOS, *plain]


def test_prompt_has_bos(server: Server) -> None:
    """vLLM's `prompt` is what a completion computes: BOS unless add_special_tokens says no."""
    answer = tokenize(server, prompt="Hello you", return_token_strs=True)
    assert answer["tokens"][0] == BOS
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert answer["max_model_len"] == 2048
    assert answer["token_strs"][0] == "<s>"
    bare = tokenize(server, prompt="Hello you", add_special_tokens=False)
    assert bare["tokens"] == answer["tokens"][1:]
    assert "token_strs" not in bare


def test_the_same_tokens_as_a_completion(server: Server) -> None:
    """A text and its tokens are one prompt."""
    tokens = tokenize(server, prompt="Hello you")["tokens"]
    body = {"max_tokens": 8, "temperature": 0}
    of_text = server.post({"prompt": "Hello you", **body}).json()
    of_tokens = server.post({"prompt": tokens, **body}).json()
    assert of_text["usage"]["prompt_tokens"] == len(tokens)
    assert of_text["choices"] == of_tokens["choices"]


@pytest.mark.parametrize("text", ["<s>Hello you", "<s>", "<s><s>a", " <s>a", "a<s>", "<s> a"])
def test_a_text_that_spells_bos(server: Server, text: str) -> None:
    """A prompt has as many tokens as a completion of the same text: BOS is not there twice."""
    body = {"max_tokens": 4, "temperature": 0, "ignore_eos": True}
    of_text = server.post({"prompt": text, **body}).json()
    for asked in ({"prompt": text}, {"content": text, "add_special": True}):
        tokens = tokenize(server, **asked)["tokens"]
        assert of_text["usage"]["prompt_tokens"] == len(tokens)
        assert server.post({"prompt": tokens, **body}).json()["choices"] == of_text["choices"]
    plain = tokenize(server, prompt=text, parse_special=False)["tokens"]
    assert (plain[0], plain.count(BOS)) == (BOS, 1)


@pytest.mark.parametrize(
    "text", ["Hello you", "zwölf Löwen", "\U0001f600\u4e2d", "a\tb\n\nc", "\0"]
)
def test_round_trip(server: Server, text: str) -> None:
    """To detokenize what was tokenized gives the text, behind this tokenizer's leading space."""
    assert detokenize(server, tokenize(server, content=text)["tokens"]) == " " + text


def test_pieces(server: Server) -> None:
    """with_pieces gives the text of each token, or its bytes where they are no whole character."""
    pieces = tokenize(server, content="you \U0001f600", with_pieces=True)["tokens"]
    raw = b"".join(
        bytes(item["piece"]) if isinstance(item["piece"], list) else item["piece"].encode()
        for item in pieces
    )
    assert raw.decode() == " you \U0001f600"
    assert any(isinstance(item["piece"], list) for item in pieces)
    assert detokenize(server, [item["id"] for item in pieces]) == raw.decode()


def test_special_tokens_in_a_text(server: Server) -> None:
    """A control token spelt out is that token, unless parse_special is off; it is shown again."""
    tokens = tokenize(server, content="a</s>")["tokens"]
    assert tokens[-1] == 2
    assert 2 not in tokenize(server, content="a</s>", parse_special=False)["tokens"]
    assert detokenize(server, tokens).endswith("</s>")


def test_empty(server: Server) -> None:
    """An empty text has no tokens but BOS, and no tokens are an empty text."""
    assert tokenize(server, content="")["tokens"] == []
    assert tokenize(server, prompt="")["tokens"] == [BOS]
    assert detokenize(server, []) == ""


BAD_TEXTS: list[tuple[dict[str, Any], str | None]] = [
    ({}, "prompt"),
    ({"content": None}, "prompt"),
    ({"content": "a", "prompt": "a"}, "content"),
    ({"content": 5}, "content"),
    ({"content": ["a"]}, "content"),
    ({"prompt": {}}, "prompt"),
    ({"prompt": [1, 2]}, "prompt"),
    ({"content": "a", "add_special": "yes"}, "add_special"),
    ({"content": "a", "with_pieces": 1}, "with_pieces"),
    ({"content": "a" * (TEXT.most + 1)}, "content"),
    ({"prompt": "a" * (TEXT.most + 1)}, "prompt"),
]


@pytest.mark.parametrize(("body", "param"), BAD_TEXTS, ids=lambda v: str(v)[:40])
def test_bad_text(server: Server, body: dict[str, Any], param: str | None) -> None:
    """A wrong or too long text is a 400 that names the field."""
    answer = server.post(body, "/tokenize")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


BAD_TOKENS = {
    "absent": None,
    "text": "a",
    "negative": [-1],
    "above": [5, 320],
    "int32": [2**31],
    "int64": [2**63],
    "huge": [10**400],
    "wrapping": [-(2**31)],
    "float": [1.5],
    "bool": [True],
    "nested": [[1]],
    "null": [None],
    "object": {"0": 1},
    "too many": [1] * (TOKENS.most + 1),
    "one bad of many": [1] * 10_000 + [320],
}


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_bad_tokens(server: Server, name: str) -> None:
    """An id that the vocabulary does not have never reaches native code."""
    answer = server.post({"tokens": BAD_TOKENS[name]}, "/detokenize")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tokens"
    assert server.health()["status"] == "ok"


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
@pytest.mark.parametrize("body", [b"", b"[", b"\xff", b"[1]", b'{"tokens": [1}', b"{" * 100_000])
def test_bad_body(server: Server, path: str, body: bytes) -> None:
    """A body that is no JSON object is a 400."""
    assert http.post(server.url + path, content=body).status_code == 400


def test_large(server: Server) -> None:
    """A long text is read whole, many tokens are put together again."""
    text = "Hello you, " * 20_000
    tokens = tokenize(server, content=text)["tokens"]
    assert detokenize(server, tokens) == " " + text


@pytest.mark.parametrize("unit", ["aB", "!", "\r\n", "a1", "é", "ab cd ", " ", "'s"])
def test_words_without_end(splitting: Server, unit: str) -> None:
    """Words that would overflow the stack in native code are read, also as prompts."""
    text = unit * 60_000
    tokens = tokenize(splitting, content=text)["tokens"]
    assert detokenize(splitting, tokens) == text
    answer = splitting.post({"prompt": text, "max_tokens": 1})
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert splitting.post({"prompt": unit, "max_tokens": 1}).status_code == 200


def test_tokenizer_info(server: Server) -> None:
    """/tokenizer_info tells the special tokens and the template."""
    info = http.get(server.url + "/tokenizer_info").json()
    assert (info["bos_token"], info["bos_token_id"]) == ("<s>", 1)
    assert (info["eos_token"], info["eos_token_id"]) == ("</s>", 2)
    assert (info["pad_token"], info["pad_token_id"]) == (None, None)
    assert 2 in info["eog_token_ids"]
    assert (info["add_bos_token"], info["add_eos_token"]) == (True, False)
    assert (info["vocab_size"], info["model_max_length"]) == (320, 2048)
    assert info["chat_template"] == ggufs.CHAT_TEMPLATE
