"""The application: all routes over one worker."""

from __future__ import annotations

from typing import Any

from litestar import Litestar

from worker.lifecycle.worker import Worker
from worker.service.body import MAX_BODY_BYTES
from worker.service.chat import chat_routes
from worker.service.completions import completions_route
from worker.service.errors import on_error
from worker.service.gate import Gate
from worker.service.health import health_route
from worker.service.info import info_routes
from worker.service.job_routes import job_routes
from worker.service.jobs import Jobs
from worker.service.metrics import metrics_route
from worker.service.models import models_routes
from worker.service.progress import progress_route
from worker.service.props import props_routes
from worker.service.shutdown import shutdown_route
from worker.service.tokens import tokens_routes


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
