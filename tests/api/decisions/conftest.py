"""One demo model for the tests of how questions are read."""

from __future__ import annotations

import time
from collections.abc import Generator

import pytest

from tests.api.decisions.reading_model import ReadingModel
from tests.support.facts import facts_over
from tests.support.sessions import load
from worker.api.intake.chat.templates import format_of
from worker.cache.store import Store
from worker.demo import MODEL_PATH
from worker.engine.engine import Engine


@pytest.fixture(scope="package")
def reading_model() -> Generator[ReadingModel]:
    """The demo model and an engine over it."""
    path = MODEL_PATH
    with load(path, num_cells=8192, num_slots=4) as backend:
        facts = facts_over(backend, path)
        store = Store(1 << 28, needs_rest=False)
        yield ReadingModel(
            backend, facts, format_of(facts), Engine(backend, time.perf_counter, store)
        )
