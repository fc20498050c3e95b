"""The application: all routes over one worker."""

from __future__ import annotations

from typing import Any

from litestar import Litestar

from worker.lifecycle.worker import Worker
from worker.service.body import MAX_BODY_BYTES
from worker.service.errors import on_error
from worker.service.gate import Gate
from worker.service.info.about import info_routes
from worker.service.info.health import health_route
from worker.service.info.metrics import metrics_route
from worker.service.info.progress import progress_route
from worker.service.info.props import props_routes
from worker.service.info.shutdown import shutdown_route
from worker.service.jobs.registry import Jobs
from worker.service.jobs.routes import job_routes
from worker.service.openai.chat import chat_routes
from worker.service.openai.completions import completions_route
from worker.service.openai.models import models_routes
from worker.service.tokens.routes import tokens_routes


def create_app(worker: Worker) -> Any:
    """The ASGI application that uvicorn runs."""
    app = Litestar(
        [
            health_route(worker),
            *models_routes(worker),
            completions_route(worker),
            *chat_routes(worker),
            *info_routes(worker),
            *job_routes(worker, Jobs(timeout=worker.settings.inference_timeout)),
            metrics_route(worker),
            progress_route(worker),
            *props_routes(worker),
            shutdown_route(worker),
            *tokens_routes(worker),
        ],
        exception_handlers={Exception: on_error},
        request_max_body_size=MAX_BODY_BYTES,
        openapi_config=None,
        logging_config=None,
    )
    return Gate(app, worker)
