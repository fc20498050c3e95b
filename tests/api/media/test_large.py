"""Bodies that show much: as many pictures as a request may, of a camera's size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.media.asked import CHAT, answered, chat, picture, user, words
from tests.support import http
from tests.support.models.projectors import png
from tests.support.programs.processes import serving
from worker.limits import BODY, MEDIA

pytestmark = pytest.mark.mtmd

MIB = 1 << 20


def test_many_large_pictures(llava: Path) -> None:
    """64 pictures of 1.5 MB fit; a larger body is a 413 that names the option that bounds it."""
    many = [picture(png(708, 708, seed)) for seed in range(MEDIA.most)]
    assert len(png(708, 708)) > 1_500_000
    with serving("--model", llava, "-c", "2048", "--max-media-body", "130") as server:
        asked: dict[str, Any] = {"ignore_eos": True, "max_tokens": 4}
        reply = answered(server, chat(user(*many, words("what?")), **asked))
        assert reply["usage"]["prompt_tokens"] > MEDIA.most
        assert "warnings" not in reply
        for path, size, told in (
            (CHAT, 131, "--max-media-body sets how much; now that is 130 MiB"),
            ("/v1/completions", BODY.most + 1, "--max-body sets how much; now that is 16 MiB"),
        ):
            try:
                refused = http.post(server.url + path, content=b" " * (size * MIB))
            except httpx.WriteError:
                continue  # the worker answered and closed while we still wrote
            assert refused.status_code == 413
            assert told in refused.text
