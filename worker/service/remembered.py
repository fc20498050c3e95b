"""What Litestar would remember of requests: the only module that knows private parts of it."""

from __future__ import annotations

import inspect
from types import ModuleType

from litestar import Litestar
from litestar._asgi.routing_trie import traversal
from litestar._kwargs import extractors
from litestar.connection import base

# It keeps the results for the last 1,024 paths and query strings, whole, however long they are.
_REMEMBERS: tuple[tuple[ModuleType, str], ...] = (
    (traversal, "parse_path_params"),
    (extractors, "parse_query_string"),
    (extractors, "create_query_default_dict"),
    (base, "parse_query_string"),
)


def forget_requests(app: Litestar) -> None:
    """Make it keep nothing of what clients send.

    Names of jobs and requests never come again: they filled the memory for an hour, one by one
    between what stays. With the longest paths and query strings 3,300 requests left 250 MB.
    """
    for module, name in _REMEMBERS:
        setattr(module, name, inspect.unwrap(getattr(module, name)))
    router = app.asgi_router
    router.handle_routing = router._handle_routing  # type: ignore[method-assign]
