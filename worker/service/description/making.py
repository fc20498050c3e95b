"""What /openapi.json and /docs give; imported when somebody asks first."""

from __future__ import annotations

import msgspec

from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker
from worker.service.description.apis import APIS
from worker.service.description.document import document_of
from worker.service.description.page import HEADERS, page_of
from worker.service.description.routes import Description


def description_of(worker: Worker, loaded: Loaded) -> Description:
    """Made anew; blocks."""
    has_key = bool(worker.settings.api_keys)
    has_page = worker.settings.page
    document = document_of(APIS, model_id=loaded.model_id, has_key=has_key, has_page=has_page)
    return Description(msgspec.json.encode(document), page_of(document), HEADERS)
