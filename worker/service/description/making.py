"""What /openapi.json and /docs give; imported when somebody asks first."""

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
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.service.description.document import document_of
from worker.service.description.page import HEADERS, page_of
from worker.service.description.routes import Description, docs, openapi_json

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


def description_of(worker: Worker, loaded: Loaded) -> Description:
    """Made anew; blocks."""
    has_key = bool(worker.settings.api_keys)
    has_page = worker.settings.page
    document = document_of(APIS, model_id=loaded.model_id, has_key=has_key, has_page=has_page)
    return Description(msgspec.json.encode(document), page_of(document), HEADERS)
