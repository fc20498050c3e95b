"""All APIs of the worker, as their descriptions say them."""

from __future__ import annotations

from worker.service.anthropic.described import API as ANTHROPIC
from worker.service.infill.described import API as INFILL
from worker.service.info.described import API as WORKER
from worker.service.jobs.described import API as JOBS
from worker.service.ollama.described import API as OLLAMA
from worker.service.openai.described import API as OPENAI
from worker.service.requests.described import API as REQUESTS
from worker.service.responses.described import API as RESPONSES
from worker.service.tokens.described import API as TOKENS

APIS = (OPENAI, RESPONSES, ANTHROPIC, OLLAMA, INFILL, TOKENS, JOBS, REQUESTS, WORKER)
