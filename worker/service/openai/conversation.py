"""Messages to a conversation: checked, with the model file's own template."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.chat.conversation import Conversation
from worker.chat.template import ChatTemplate
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.service.openai.chat_schemas import ChatMessage, ChatRequest
from worker.service.openai.limits import tokens_of, truncates
from worker.service.prompts import Prompt, check_characters, rendered_prompt
from worker.service.truncation import MAX_CHARS, Truncated, shortened

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


def conversation_of(body: ChatRequest, template: ChatTemplate, loaded: Loaded) -> Conversation:
    """What the body's messages are. Raises RequestError that names the field."""
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
    if size > MAX_CHARS or not truncates(body.truncation):
        check_characters(size, loaded, PARAM, plural=True)
    variables = {
        name: value
        for name, value in (body.chat_template_kwargs or {}).items()
        if name not in ("messages", "tools", "add_generation_prompt") and name.isidentifier()
    }
    return Conversation(
        template,
        messages,
        add_generation_prompt=body.add_generation_prompt is not False,
        continues=bool(body.continue_final_message),
        variables={**variables, "tools": body.tools or None},
    )


def prompt_of(
    body: ChatRequest, template: ChatTemplate, loaded: Loaded
) -> tuple[Conversation, Prompt, Truncated | None]:
    """(the conversation, shortened where the body asks for that; its prompt; what was left out).

    Raises RequestError that names the field; renders and tokenises, so it blocks.
    """
    conversation = conversation_of(body, template, loaded)
    if truncates(body.truncation):
        return shortened(conversation, limit_of(body), loaded, PARAM)
    return conversation, rendered_prompt(conversation.text, loaded, PARAM), None


def text_of(body: ChatRequest, template: ChatTemplate, loaded: Loaded) -> str:
    """The prompt's text, as `prompt_of` tokenises it; blocks."""
    if truncates(body.truncation):
        return prompt_of(body, template, loaded)[0].text
    return conversation_of(body, template, loaded).text


def limit_of(body: ChatRequest) -> int | None:
    """Tokens to sample at most; None: until the model or the context ends."""
    return tokens_of(
        max_completion_tokens=body.max_completion_tokens,
        max_tokens=body.max_tokens,
        least=1,
        default=None,
    )


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
