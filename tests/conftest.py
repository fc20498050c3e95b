"""What several test modules share: small generated models and one running server."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support import ggufs, here
from tests.support.processes import Server, serving
from worker import log

log.configure("console", quiet=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this build or this machine cannot run."""
    for item in items:
        for mark in here.MARKS:
            if item.get_closest_marker(mark) and (reason := here.why_not(mark)):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of two layers; its text is noise, its behaviour is real."""
    return ggufs.write_llama(tmp_path_factory.mktemp("models") / "tiny.gguf", context=2048)


@pytest.fixture(scope="session")
def server(tiny: Path) -> Generator[Server]:
    """One server over the tiny model for all tests that leave it as they found it."""
    with serving("--model", tiny, "--alias", "org/tiny", "--ctx-size", "2048") as running:
        yield running
