"""What clients ask: paths and bodies of every API, made by chance."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

_SYLLABLES = ("ba", "do", "fi", "ga", "ho", "ka", "li", "mo", "na", "po", "ra", "se", "ti", "wo")
# New ones each time, large enough that what is kept of constraints is full within minutes.
WIDE_WORDS = 4_000
MAX_CONVERSATIONS = 60
MAX_TURNS = 8
SHARED_PROMPTS = 4
NUM_FORMS = 24  # constraints and tools that come again


@dataclass(frozen=True)
class Question:
    """One POST. `streams`: the answer comes in parts."""

    path: str
    body: dict[str, Any]
    streams: bool = False


@dataclass
class Conversation:
    """Messages so far; the next question is the last of them."""

    messages: list[dict[str, str]] = field(default_factory=list[dict[str, str]])


class Questions:
    """All that is asked, and the conversations that come back."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.conversations: list[Conversation] = []
        self._shared = [self.text(120) for _ in range(SHARED_PROMPTS)]
        forms = random.Random(1)
        self._schemas = [_schema(forms) for _ in range(NUM_FORMS)]
        self._choices = [_word(forms) for _ in range(NUM_FORMS)]

    def text(self, num_words: int) -> str:
        """Words of no sense; about two tokens each."""
        return " ".join(_word(self._draw) for _ in range(num_words))

    def any(self) -> Question:
        """One of any kind that generates."""
        kinds = (self.completion, self.chat, self.response, self.message, self.ollama, self.job,
                 self.formed)  # fmt: skip
        return self._draw.choices(kinds, (4, 4, 2, 2, 2, 2, 3))[0]()

    def completion(self) -> Question:
        """A text to continue."""
        draw = self._draw
        body: dict[str, Any] = {"prompt": self._prompt(), "max_tokens": draw.randint(1, 24)}
        extras: tuple[dict[str, Any], ...] = (
            {}, {"temperature": 0}, {"n": 2, "seed": 3}, {"logprobs": 3}, {"stop": ["a", "li"]},
            {"echo": True, "logprobs": 1}, {"min_p": 0.1, "top_k": 20}, {"best_of": 3},
            {"mirostat": 2}, {"dry_multiplier": 0.8}, {"logit_bias": {"5": 2}},
        )  # fmt: skip
        extra = draw.choice(extras)
        return self._sent("/v1/completions", {**body, **extra}, whole="best_of" in extra)

    def chat(self, conversation: Conversation | None = None) -> Question:
        """A conversation: a given one, or a question alone."""
        messages = conversation.messages if conversation else self._messages()
        return self._sent(
            "/v1/chat/completions", {"messages": messages, "max_tokens": self._draw.randint(4, 24)}
        )

    def response(self) -> Question:
        """OpenAI's newer API."""
        body = {"input": self._prompt(), "max_output_tokens": self._draw.randint(4, 24)}
        return self._sent("/v1/responses", body)

    def message(self) -> Question:
        """Anthropic's."""
        body = {"messages": self._messages()[-1:], "max_tokens": self._draw.randint(4, 24),
                "system": self._draw.choice(self._shared)}  # fmt: skip
        return self._sent("/v1/messages", body)

    def ollama(self) -> Question:
        """Ollama's."""
        options = {"num_predict": self._draw.randint(4, 24)}
        if self._draw.random() < 0.5:
            body = {"messages": self._messages(), "options": options}
            return self._sent("/api/chat", body)
        return self._sent("/api/generate", {"prompt": self._prompt(), "options": options})

    def job(self) -> Question:
        """The original worker's."""
        body = {"prompt": self._prompt(), "max_tokens": self._draw.randint(1, 24)}
        path = self._draw.choice(("/execute", "/v1/infer"))
        if path == "/execute":
            return Question(path, body, streams=True)
        return self._sent(path, body)

    def formed(self) -> Question:
        """Held to a form: most come again, some are new."""
        draw = self._draw
        number = draw.randrange(NUM_FORMS)
        body: dict[str, Any] = {"messages": self._messages()[-1:], "max_tokens": 24}
        name = self._choices[number]
        kind = draw.choices(("schema", "tools", "gbnf", "regex", "wide"), (4, 3, 2, 2, 5))[0]
        if kind == "tools":
            function = {"name": name, "parameters": self._schemas[number]}
            body["tools"] = [{"type": "function", "function": function}]
            body["tool_choice"] = draw.choice(("auto", "required"))
            return self._sent("/v1/chat/completions", body)
        forms: dict[str, dict[str, Any]] = {
            "schema": {"json_schema": self._schemas[number]},
            "gbnf": {"grammar": f'root ::= "{name}" [a-z]{{1,9}} root | "."'},
            "regex": {"guided_regex": f"({name}|[0-9]{{3}})+"},
            "wide": {
                "json_schema": {"enum": [_word(draw) + _word(draw) for _ in range(WIDE_WORDS)]}
            },
        }
        return self._sent("/v1/chat/completions", {**body, **forms[kind]})

    def turn(self) -> Conversation:
        """A conversation with a new question: one that comes back, or a new one."""
        draw = self._draw
        if self.conversations and draw.random() < 0.75:
            conversation = self.conversations.pop(draw.randrange(len(self.conversations)))
        else:
            system = {"role": "system", "content": draw.choice(self._shared)}
            conversation = Conversation([system])
        question = {"role": "user", "content": self.text(draw.randint(4, 30))}
        return Conversation([*conversation.messages, question])

    def came(self, conversation: Conversation, answer: str) -> None:
        """It was answered, and comes back unless it is long."""
        said = {"role": "assistant", "content": answer or "ba"}
        conversation = Conversation([*conversation.messages, said])
        if len(conversation.messages) < 2 * MAX_TURNS:
            self.conversations.append(conversation)
        if len(self.conversations) > MAX_CONVERSATIONS:
            del self.conversations[0]

    def _sent(self, path: str, body: dict[str, Any], *, whole: bool = False) -> Question:
        streams = not whole and self._draw.random() < 0.5
        return Question(path, {**body, "stream": streams}, streams)

    def _prompt(self) -> str:
        """Mostly short; some long ones, some that begin like others."""
        roll = self._draw.random()
        if roll < 0.05:
            return self.text(self._draw.randint(200, 450))
        if roll < 0.3:
            return self._draw.choice(self._shared) + " " + self.text(8)
        return self.text(self._draw.randint(1, 40))

    def _messages(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": self._prompt()}]


def _word(draw: random.Random) -> str:
    return "".join(draw.choices(_SYLLABLES, k=2))


def _schema(draw: random.Random) -> dict[str, Any]:
    kinds: tuple[dict[str, Any], ...] = (
        {"type": "integer", "minimum": 0, "maximum": draw.randint(5, 500)},
        {"type": "string", "maxLength": draw.randint(3, 12)},
        {"type": "boolean"},
        {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        {"enum": [_word(draw) for _ in range(5)]},
    )
    names = sorted({_word(draw) for _ in range(draw.randint(1, 4))})
    return {
        "type": "object",
        "properties": {name: draw.choice(kinds) for name in names},
        "required": names,
    }
