"""All APIs of the worker, as their descriptions say them."""

from __future__ import annotations

import msgspec

from worker.api.anthropic.described import API as ANTHROPIC
from worker.api.common.described import HTML, JSON, Described
from worker.api.embeddings.described import API as VECTORS
from worker.api.info.described import API as WORKER
from worker.api.jobs.described import API as JOBS
from worker.api.llama_server.described import API as LLAMA_SERVER
from worker.api.ollama.described import API as OLLAMA
from worker.api.openai.described import API as OPENAI
from worker.api.requests.described import API as REQUESTS
from worker.api.responses.described import API as RESPONSES
from worker.api.tokens.described import API as TOKENS
from worker.service.description.routes import docs, openapi_json

_OWN = (
    Described(handler=openapi_json, gives={JSON: dict}),
    Described(handler=docs, gives={HTML: str}),
)
_WORKER = msgspec.structs.replace(WORKER, routes=(*WORKER.routes, *_OWN))

APIS = (
    OPENAI,
    RESPONSES,
    ANTHROPIC,
    OLLAMA,
    LLAMA_SERVER,
    VECTORS,
    TOKENS,
    JOBS,
    REQUESTS,
    _WORKER,
)
