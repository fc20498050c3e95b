"""The places in a chat prompt's tokens where other prompts are likely to leave it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.facts import facts_over, facts_with
from tests.support.models import architectures, ggufs
from tests.support.sessions import load
from worker.api.intake.chat.asking import ask
from worker.api.intake.chat.chat_input import ChatInput
from worker.api.intake.chat.truncation import checkpoints_of, token_places
from worker.api.intake.media_inputs import MediaInputs
from worker.api.intake.prompts import rendered_prompt
from worker.chat.conversation import Conversation
from worker.chat.format import ChatFormat
from worker.chat.message import Message
from worker.chat.template import ChatTemplate
from worker.engine.request import GenerationParams
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content | trim +"
    " '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% endif %}"
)
HISTORY = [
    {"role": "system", "content": "You are a héllo 你好 sailor.\n"},
    {"role": "user", "content": "the one who sat there, and 12 others?"},
    {"role": "assistant", "content": "that is  it"},
]
QUESTION = {"role": "user", "content": "The other one then"}
ANSWER = {"role": "assistant", "content": "yes, it is"}
VOCABS = Path(__file__).parents[4] / "../shared/vocabs"


@pytest.fixture(scope="module", params=["spm", "bpe", "qwen2", "llama-bpe", "phi-3", "gemma-4"])
def vocab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Vocab]:
    """A generated vocabulary, or a real one where it is there."""
    path = VOCABS / f"ggml-vocab-{request.param}.gguf"
    if request.param in ("spm", "bpe"):
        folder = tmp_path_factory.mktemp("vocab")
        path = ggufs.vocab_gguf(request.param).write(folder / "vocab.gguf")
    elif not path.exists():
        pytest.skip("the folder ../shared/vocabs is missing")
    with Weights(path, LoadOptions(vocab_only=True)) as weights:
        yield Vocab(weights.handle, 512)


def conversation(*messages: dict[str, Any]) -> Conversation:
    return Conversation(ChatTemplate(TEMPLATE, bos="", eos=""), messages)


def num_common(left: Sequence[int], right: Sequence[int]) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(left), len(right)))


def test_checkpoints_are_before_the_branches(vocab: Vocab) -> None:
    """Prompts that branch off have all tokens up to a checkpoint, and at most 3 more, in common."""
    facts = facts_with(vocab=vocab)

    def tokens(*messages: dict[str, Any]) -> tuple[int, ...]:
        return rendered_prompt(
            conversation(*messages).text, facts, "messages", MediaInputs()
        ).tokens

    whole = tokens(*HISTORY, QUESTION)
    found = checkpoints_of(conversation(*HISTORY, QUESTION), whole, facts)
    others = [
        tokens(HISTORY[0], {"role": "user", "content": "Who?"}),
        tokens(*HISTORY, {"role": "user", "content": "Where was it"}),
        tokens(*HISTORY, QUESTION, ANSWER, {"role": "user", "content": "Good"}),
    ]
    common = [num_common(whole, other) for other in others]
    assert len(found) == 3
    opening = len(vocab.tokenize("<|im_start|>assistant\n", add_special=False, parse_special=True))
    for place, shared, slack in zip(found, common, (3, 3, opening + 3), strict=True):
        assert shared - slack <= place <= shared


def test_places_of_characters(vocab: Vocab) -> None:
    """The tokens before a place are those that end at or before it."""
    text = "<|im_start|>the one\n\n  who sat 你好, and 12 others"
    tokens = vocab.tokenize(text, add_special=True, parse_special=True)
    spelled = [vocab.spelled[token].replace(b" ", b"").replace(b"\n", b"") for token in tokens]
    begin = len(b"".join(spelled)) - len("".join(text.split()).encode())
    found = token_places(text, range(1, len(text)), tokens, facts_with(vocab=vocab))
    assert found is not None
    for place, count in zip(range(1, len(text)), found, strict=True):
        stop = begin + len("".join(text[:place].split()).encode())
        assert len(b"".join(spelled[:count])) <= stop
        assert len(b"".join(spelled[: count + 1])) > stop or not spelled[count]


def test_a_tokenizer_that_changes_the_text(vocab: Vocab) -> None:
    """Where the tokens say something else no place is known."""
    tokens = vocab.tokenize("the one", add_special=False, parse_special=True)
    assert token_places("the ONE", [3], tokens, facts_with(vocab=vocab)) is None


@pytest.mark.parametrize(
    ("write", "count"),
    [(architectures.write_lfm2, 3), (architectures.write_mamba, 3),
     (architectures.write_gemma3, 3), (architectures.write_qwen3, 0)],
)  # fmt: skip
def test_requests_carry_them(write: Callable[[Path], Path], count: int, tmp_path: Path) -> None:
    """Recurrent, hybrid and windowed models get a prompt's checkpoints with each continuation."""
    path = write(tmp_path / "model.gguf")
    with load(path) as backend:
        messages = tuple(
            Message(role=m["role"], content=m["content"]) for m in (*HISTORY, QUESTION)
        )
        chat = ChatFormat(ChatTemplate(TEMPLATE, bos="<s>", eos=""), {})
        talk = ChatInput(messages=messages, params=GenerationParams(n=2))
        requests = ask(talk, chat, facts_over(backend, path)).requests()
    (kept,) = {request.prompt.checkpoints for request in requests}
    assert len(kept) == count
    assert list(kept) == sorted(set(kept))
    assert all(0 < place < len(requests[0].prompt.tokens) for place in kept)
