"""Where other prompts leave a conversation's prompt, and what its old turns are."""

from __future__ import annotations

from typing import Any

import pytest

from worker.chat.conversation import Conversation
from worker.chat.template import ChatTemplate

PLAIN = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if think %}<think>{% endif %}{% endif %}"
)
# The system's words are a part of the first question, as in Gemma's.
FOLDED = (
    "{% if messages[0].role == 'system' %}{% set ns = namespace(s=messages[0].content ~ '. ') %}"
    "{% else %}{% set ns = namespace(s='') %}{% endif %}{% for m in messages %}"
    "{% if m.role != 'system' %}<{{ m.role }}>{{ ns.s ~ m.content }}{% set ns.s = '' %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
# Tools stand before the last question, as in Mistral's.
MOVED = (
    "{% for m in messages %}{% if loop.last and tools %}[{{ tools }}]{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
# Only the thoughts after the last question are shown, as in Qwen's.
THOUGHTS = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}<{{ m.role }}>"
    "{% if m.thought and loop.index0 > ns.last %}({{ m.thought }}){% endif %}{{ m.content }}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
REFUSES = "{% if messages | length > 3 %}{{ raise_exception('too many') }}{% endif %}" + PLAIN
SYSTEM, FIRST, SECOND = (
    {"role": "system", "content": "Be kind"},
    {"role": "user", "content": "\n One?"},
    {"role": "user", "content": "Two?"},
)
ANSWER = {"role": "assistant", "content": "Yes"}
CALL = {"role": "assistant", "content": "Call", "thought": "Why"}
RESULT = {"role": "tool", "content": "4"}
WHOLE = [SYSTEM, FIRST, ANSWER, SECOND]


def conversation(source: str, messages: list[Any], **variables: Any) -> Conversation:
    return Conversation(ChatTemplate(source, bos="", eos=""), messages, variables=variables)


@pytest.mark.parametrize(
    ("source", "messages", "variables", "begins"),
    [
        (PLAIN, WHOLE, {},
         ["<system>Be kind\n<user>", "<assistant>Yes\n<user>", "Two?\n"]),
        (PLAIN, WHOLE, {"think": True},
         ["<system>Be kind\n<user>", "<assistant>Yes\n<user>", "Two?\n"]),
        (PLAIN, [SECOND], {}, ["<user>", "Two?\n"]),
        (PLAIN, [SYSTEM], {}, ["Be kind\n"]),
        (FOLDED, WHOLE, {}, ["<user>Be kind. ", "<assistant>Yes<user>", "Two?"]),
        (MOVED, WHOLE, {"tools": "T"}, ["<user>", "<assistant>Yes", "Two?"]),
        (THOUGHTS, [SYSTEM, FIRST, CALL, RESULT], {},
         ["<system>Be kind<user>", "One?<assistant>", "<tool>4"]),
        (REFUSES, WHOLE[:2], {}, ["\n<user>One?\n"]),
    ],
)  # fmt: skip
def test_branches(
    source: str, messages: list[Any], variables: dict[str, Any], begins: list[str]
) -> None:
    """A branch is where the prompts part: its text ends so, white space aside."""
    made = conversation(source, messages, **variables)
    found = [made.text[:place] for place in made.branches()]
    assert len(found) == len(begins), found
    for text, end in zip(found, begins, strict=True):
        assert text.rstrip().endswith(end.rstrip()), found


def test_old_turns() -> None:
    """A turn goes with all that follows its question; the system part and the last turn stay."""
    greeting = {"role": "assistant", "content": "Hello"}
    rule = {"role": "system", "content": "Now be short"}
    messages = [SYSTEM, greeting, FIRST, CALL, RESULT, ANSWER, rule, SECOND, ANSWER, FIRST, CALL]
    made = conversation(PLAIN, messages)
    assert made.num_old_turns == 2
    assert made.without(0).messages == tuple(messages)
    assert made.without(1).messages == (SYSTEM, SECOND, ANSWER, FIRST, CALL)
    assert made.without(2).messages == (SYSTEM, FIRST, CALL)
    assert conversation(PLAIN, [SYSTEM, FIRST, ANSWER]).num_old_turns == 0
    assert conversation(PLAIN, [SYSTEM]).num_old_turns == 0


def test_where_user_messages_begin() -> None:
    """Each message's words begin there, white space that the template trims aside."""
    made = conversation(PLAIN, WHOLE)
    assert [made.text[place:][:4] for place in made.user_starts] == ["One?", "Two?"]
    assert conversation("{{ messages | tojson | length }}", WHOLE).user_starts == []
