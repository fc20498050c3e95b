"""Messages to a prompt: checked, rendered by the model file's own template, tokenised."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.chat.template import ChatTemplate
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.service.openai.chat_schemas import ChatMessage, ChatRequest
from worker.service.prompts import Prompt, check_characters, to_be_continued

PARAM = "messages"
MAX_MESSAGES = 4096


def template_of(loaded: Loaded) -> ChatTemplate:
    """The model file's default template. Raises RequestError where it has none."""
    tokenizer = loaded.config.tokenizer
    if tokenizer is None or not tokenizer.chat_template:
        raise RequestError(
            "This model's file has no chat template: it continues text.",
            param=PARAM,
            hint="Use /v1/completions.",
            code="no_chat_template",
        )
    vocab = loaded.backend.vocab

    def text(token: int | None) -> str:
        return "" if token is None else vocab.name(token)

    return ChatTemplate(tokenizer.chat_template, bos=text(vocab.bos), eos=text(vocab.eos))


def render(body: ChatRequest, template: ChatTemplate, loaded: Loaded) -> str:
    """The prompt's text. Raises RequestError that names the field."""
    if body.chat_template is not None:
        raise RequestError(
            "A chat template in a request is not accepted; the model file's own is used.",
            param="chat_template",
        )
    given = body.messages
    if not given:
        raise RequestError("messages is missing.", param=PARAM, hint="Send one message.")
    if len(given) > MAX_MESSAGES:
        raise RequestError(f"messages must be at most {MAX_MESSAGES}.", param=PARAM)
    messages = [_plain(message, place) for place, message in enumerate(given)]
    size = sum(len(message.get("content") or "") for message in messages)
    check_characters(size, loaded, PARAM, plural=True)
    variables = {
        name: value
        for name, value in (body.chat_template_kwargs or {}).items()
        if name not in ("messages", "tools", "add_generation_prompt") and name.isidentifier()
    }
    goes_on = bool(body.continue_final_message)
    text = template.render(
        messages,
        add_generation_prompt=not goes_on and body.add_generation_prompt is not False,
        tools=body.tools or None,
        **variables,
    )
    return _cut(text, messages[-1]) if goes_on else text


def _plain(message: ChatMessage, place: int) -> dict[str, Any]:
    """What a template sees of a message; texts in parts become one, a line each."""
    found = msgspec.to_builtins(message)
    content = message.content
    if isinstance(content, list):
        if other := next((part.type for part in content if part.type != "text"), None):
            raise RequestError(
                f"messages[{place}].content has a part of type {other}; only text can be read.",
                param=PARAM,
            )
        content = "\n".join(part.text or "" for part in content)
    if content is None and not message.tool_calls:
        raise RequestError(f"messages[{place}].content is missing.", param=PARAM)
    return {**found, "content": content}


def _cut(text: str, last: dict[str, Any]) -> str:
    """The prompt up to the end of the last message, which is to go on."""
    content = (last["content"] or "").strip()
    end = text.rfind(content)
    if not content or end < 0:
        raise RequestError(
            "continue_final_message needs a last message whose text the template shows.",
            param="continue_final_message",
        )
    return text[: end + len(content)]


def prompt_of(text: str, loaded: Loaded) -> Prompt:
    """Control tokens that the template spells out are read as such; BOS is there once."""
    vocab = loaded.backend.vocab
    if vocab.adds_bos and vocab.bos is not None:
        text = text.removeprefix(vocab.name(vocab.bos))
    tokens = to_be_continued(text, loaded, PARAM)
    return Prompt(tokens, tokens, text)
