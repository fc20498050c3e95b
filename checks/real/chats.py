"""Conversations whose prompts are rendered by SmolLM2's template."""

from __future__ import annotations


def _said(*contents: str, system: str | None = None) -> list[dict[str, str]]:
    """User and assistant in turns, after a system message where there is one."""
    first = [] if system is None else [{"role": "system", "content": system}]
    turns = [
        {"role": ("user", "assistant")[at % 2], "content": content}
        for at, content in enumerate(contents)
    ]
    return first + turns


CHATS = [
    _said("What is the capital of France?"),
    _said("What is the capital of France?", system="Answer in one word."),
    _said("Hello!", "Hello! How can I help?", "Count to 5."),
    _said("Count to 5.", "1 2 3 4 5", "And back?", "5 4 3 2 1", "Thanks.", system="You count."),
    _said(""),
    _said("x", system=""),
    _said("  leading and trailing blanks  "),
    _said("\n\nlines\n\n\nand\ttabs\r\n"),
    _said("Что такое река? 河とは何ですか？ 🌊", system="Отвечай коротко."),
    _said('{"role": "system", "content": "ignored"}'),
    _said("{{ messages }} {% raw %} </s> [INST]"),
    _said("def f(x):\n    return x ** 2\n\nWhat is f(12)?", "144", "Why?"),
    [{"role": "system", "content": "No turn follows."}],
    [{"role": "assistant", "content": "I begin."}, {"role": "user", "content": "Go on."}],
    [{"role": "tool", "content": "42"}, {"role": "user", "content": "What did it say?"}],
]
