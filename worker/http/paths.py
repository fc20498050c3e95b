"""Paths that the gate knows, before there are routes."""

from __future__ import annotations

from worker.lifecycle.state import State

PAGE = "/"
# Open to everybody. SageMaker probes /ping, KServe the last two, which are the Open Inference
# Protocol's.
HEALTH = [
    PAGE,
    *"/health /v1/health /livez /readyz /ping /v2/health/live /v2/health/ready".split(),
]
PROGRESS = "/v1/loading/progress"
METRICS = "/metrics"
REQUESTS = "/v1/requests"
ONE_REQUEST = REQUESTS + "/"
# Where other APIs than OpenAI's begin.
MESSAGES = "/v1/messages"
OLLAMA = "/api/"
# Where llama-server's own clients ask.
LLAMA = frozenset("/completion /completions /infill /apply-template /embedding /embeddings".split())
# Where a conversation is answered.
CHATS = frozenset({"/v1/chat/completions", "/v1/responses", MESSAGES, OLLAMA + "chat"})
# Where a full queue is told before anything else is done; jobs have their own words for it.
WRITING = CHATS | frozenset(
    "/v1/completions /infill /completion /completions /api/generate /v1/audio/transcriptions "
    "/v1/audio/translations".split()
)
# Text-embeddings-inference's own; it has /rerank too.
TEI = frozenset({"/embed", "/embed_all", "/similarity", "/predict"})
# Where Cohere's, Voyage's and Jina's clients may ask.
VECTORS = frozenset(
    "/v1/embeddings /v1/embed /v2/embed /v1/rerank /v2/rerank /rerank /v1/reranking "
    "/reranking".split()
)
DECIDING = frozenset({"/v1/decisions", "/v1/systemone"})
_OTHERS = "/embedding /embeddings /pooling /api/embed /api/embeddings /v1/score /score"
GENERATING = WRITING | TEI | VECTORS | DECIDING | set(_OTHERS.split())
# Where requests are that use what a key may use.
COMPUTING = GENERATING | {"/v1/jobs", "/v1/inference"}
# Others have these without /v1 too, for clients whose base address lacks it.
_SHORT = ("/chat/completions", "/models", "/responses", "/decisions", "/systemone", "/audio")
SHUTDOWN = ["/shutdown", "/v1/shutdown", "/v1/admin/shutdown"]
JOB_STREAM = "/stream"
STREAMS = "/v1/streams/"
# How loading goes, and being told to stop.
_ALWAYS = frozenset({PROGRESS, *SHUTDOWN})
# What concerns work that was accepted before.
_WHILE_DRAINING = frozenset({"/cancel", REQUESTS})


def full(path: str) -> str:
    """With the version that a path may lack."""
    return f"/v1{path}" if path.startswith(_SHORT) else path


def id_headers(path: str) -> tuple[bytes, ...]:
    """Where else an API's clients look for the request's id."""
    if path.startswith(MESSAGES):
        return (b"request-id",)
    return (b"x-typesafe-request-id",) if path in DECIDING else ()


def passes(path: str, state: State) -> bool:
    """Whether a request for this path may reach the application though it is not READY."""
    if path in _ALWAYS:
        return True
    return state is State.DRAINING and (
        path in _WHILE_DRAINING
        or path.startswith((ONE_REQUEST, STREAMS))
        or path.endswith(JOB_STREAM)
    )
