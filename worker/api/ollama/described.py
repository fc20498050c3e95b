"""Ollama's API, for the description of the API."""

from __future__ import annotations

from typing import Any

from worker.api.common.described import JSON, LINES, Api, Described
from worker.api.common.refusals import BODY, CHAT, GENERATION, NO_VECTORS, PROMPT, QUEUE, TOKENIZED
from worker.api.common.shapes import OllamaErrorReply
from worker.api.ollama.embedding import (
    OllamaEmbeddingsReply,
    OllamaEmbeddingsRequest,
    OllamaEmbedReply,
    OllamaEmbedRequest,
    ollama_embed,
    ollama_embeddings,
)
from worker.api.ollama.models import (
    OllamaVersion,
    ShownModel,
    TaggedModels,
    delete_model,
    ollama_version,
    ps,
    show,
    store_models,
    tags,
)
from worker.api.ollama.replies import ChatLine, GenerateLine
from worker.api.ollama.routes import generate, ollama_chat
from worker.api.ollama.schemas import GenerateRequest, OllamaChatRequest
from worker.errors import NotSupportedError

_SUM: dict[str, Any] = {"messages": [{"role": "user", "content": "What is 3 plus 4?"}]}
_SHORT: dict[str, Any] = {"options": {"temperature": 0, "num_predict": 12}}
_LINES = "A line of JSON for each part; with `stream` false one reply with all of it."
_NO_STORE = NotSupportedError("There is no store of models here.")

API = Api(
    name="Ollama",
    text='Ollama\'s API, for clients that know no other. An error is `{"error": "..."}`.',
    routes=(
        Described(
            handler=ollama_chat,
            takes=OllamaChatRequest,
            gives={JSON: ChatLine, LINES: (ChatLine, OllamaErrorReply)},
            refuses=(*BODY, *PROMPT, *CHAT, *GENERATION),
            notes=_LINES,
            examples={
                "question": {**_SUM, **_SHORT},
                "at once": {**_SUM, **_SHORT, "stream": False},
                "nothing": {},
            },
        ),
        Described(
            handler=generate,
            takes=GenerateRequest,
            gives={JSON: GenerateLine, LINES: (GenerateLine, OllamaErrorReply)},
            refuses=(*BODY, *PROMPT, *GENERATION),
            notes=_LINES,
            examples={
                "question": {"prompt": "What is 3 plus 4?", **_SHORT},
                "text": {"prompt": "Once upon a time", "raw": True, "stream": False, **_SHORT},
                "nothing": {},
            },
        ),
        Described(handler=tags, gives={JSON: TaggedModels}),
        Described(handler=ps, gives={JSON: TaggedModels}),
        Described(handler=show, gives={JSON: ShownModel}, notes="The body is not looked at."),
        Described(handler=ollama_version, gives={JSON: OllamaVersion}),
        Described(handler=store_models, gives={}, refuses=(_NO_STORE,)),
        Described(handler=delete_model, gives={}, refuses=(_NO_STORE,)),
        Described(
            handler=ollama_embed,
            takes=OllamaEmbedRequest,
            gives={JSON: OllamaEmbedReply},
            refuses=(*BODY, *PROMPT, *QUEUE, *NO_VECTORS),
            examples={
                "two texts": {"input": ["Once it rains.", "The sky is clear."], "truncate": False},
                "nothing": {},
            },
        ),
        Described(
            handler=ollama_embeddings,
            takes=OllamaEmbeddingsRequest,
            gives={JSON: OllamaEmbeddingsReply},
            refuses=(*BODY, *TOKENIZED, *QUEUE, *NO_VECTORS),
            examples={"text": {"prompt": "Once it rains."}, "nothing": {}},
        ),
    ),
)
