"""OpenAI's routes, with what is said of each."""

from __future__ import annotations

from typing import Any

from worker.api.answer.usage import InputTokens
from worker.api.described import (
    CHAT,
    EVENTS,
    FORMED,
    GENERATION,
    JSON,
    PROMPT,
    TOKENIZED,
    Api,
    Described,
)
from worker.api.intake.adapters import MODEL_ID, NO_MODEL
from worker.api.intake.origins import Asker
from worker.api.openai.chat import apply_template, chat_completions, chat_input_tokens
from worker.api.openai.completions import completions
from worker.api.openai.models import ModelEntry, ModelList, model, models
from worker.api.openai.schemas import (
    ChatCompletion,
    ChatRequest,
    Completion,
    CompletionRequest,
    TemplateReply,
)
from worker.http.replies import ErrorReply

_SUM: dict[str, Any] = {"messages": [{"role": "user", "content": "What is 3 plus 4?"}]}
_SKY = {
    "type": "function",
    "function": {
        "name": "sky",
        "description": "The weather at a place",
        "parameters": {
            "type": "object",
            "properties": {"at": {"type": "string"}},
            "required": ["at"],
        },
    },
}
_STORY: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}


API = Api(
    name="OpenAI",
    text="Texts, chats and the model, as OpenAI's clients and llama-server's ask for them.",
    routes=(
        Described(
            handler=completions,
            asker=Asker.NAMED,
            takes=CompletionRequest,
            needs=("prompt",),
            gives={JSON: Completion, EVENTS: (Completion, ErrorReply)},
            refuses=(*PROMPT, *GENERATION),
            examples={
                "text": _STORY,
                "stream": {**_STORY, "stream": True, "stream_options": {"include_usage": True}},
                "several": {**_STORY, "temperature": 0.8, "seed": 7, "n": 2, "best_of": 3},
                "scored": {**_STORY, "echo": True, "max_tokens": 0, "logprobs": 1},
                "token ids": {"prompt": [1, 400, 7], "max_tokens": 4},
                "structured": {
                    "prompt": "One day",
                    "max_tokens": 20,
                    "json_schema": {"enum": ["cat", "duck", "goose"]},
                },
            },
        ),
        Described(
            handler=chat_completions,
            asker=Asker.NAMED,
            takes=ChatRequest,
            needs=("messages",),
            gives={JSON: ChatCompletion, EVENTS: (ChatCompletion, ErrorReply)},
            refuses=(*PROMPT, *CHAT, *GENERATION),
            examples={
                "question": {**_SUM, "temperature": 0},
                "stream": {**_SUM, "max_tokens": 12, "stream": True, "return_progress": True},
                "tools": {**_SUM, "max_tokens": 20, "tools": [_SKY]},
                "logprobs": {**_SUM, "max_tokens": 4, "logprobs": True, "top_logprobs": 2},
                "long conversation": {**_SUM, "max_tokens": 12, "truncation": "auto"},
            },
        ),
        Described(
            handler=apply_template,
            asker=Asker.NAMED,
            takes=ChatRequest,
            needs=("messages",),
            gives={JSON: TemplateReply},
            refuses=(*TOKENIZED, *CHAT, *FORMED),
            examples={"question": _SUM},
        ),
        Described(
            handler=chat_input_tokens,
            asker=Asker.NAMED,
            takes=ChatRequest,
            needs=("messages",),
            gives={JSON: InputTokens},
            refuses=(*TOKENIZED, *CHAT, *FORMED),
            examples={"question": _SUM},
        ),
        Described(handler=models, gives={JSON: ModelList}),
        Described(
            handler=model,
            gives={JSON: ModelEntry},
            params={"model_id": MODEL_ID},
            refuses=(NO_MODEL,),
        ),
    ),
)
