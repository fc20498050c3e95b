"""Who asks is told that the model sees."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import http
from tests.support.programs.processes import Server

pytestmark = pytest.mark.mtmd


def test_who_asks_is_told(seeing: Server) -> None:
    """llama-server's clients, Ollama's, and the manager."""

    def told(path: str) -> Any:
        return http.get(seeing.url + path).json()

    assert told("/props")["modalities"] == {"vision": True, "video": False, "audio": False}
    (listed,) = told("/v1/models")["models"]
    assert listed["capabilities"] == ["completion", "multimodal"]
    assert "vision" in seeing.post({"model": ""}, "/api/show").json()["capabilities"]
    assert told("/info")["capabilities"] == ["text-gen", "vision"]
