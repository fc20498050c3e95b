"""`python -m scripts.advisories`: which advisories are open for what is locked."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from scripts.advisories import index_address, main
from scripts.install.lock import LOCK

OPEN = {"id": "GHSA-1", "withdrawn": None}
WITHDRAWN = {"id": "GHSA-2", "withdrawn": "2026-01-01T00:00:00Z"}
# Page of the index: the version that it is about, and that version's advisories.
PAGES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "newest": ("2.0", []),
    "withdrawn": ("2.0", [WITHDRAWN]),
    "open": ("2.0", [OPEN, WITHDRAWN]),
    "old": ("2.0", []),
    "paged": ("2.0", []),
    "paged/1.0": ("1.0", [OPEN]),
}


class _Index(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = self.path.removeprefix("/pypi/").removesuffix("/json")
        self.send_response(200 if page in PAGES else 404)
        self.end_headers()
        if page in PAGES:
            version, found = PAGES[page]
            body = {"info": {"version": version}, "vulnerabilities": found}
            self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""


@pytest.fixture(scope="module")
def index() -> Generator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Index) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("pin", "told", "code"),
    [
        ("newest==2.0", "none", 0),
        ("withdrawn==2.0", "none", 0),
        ("open==2.0", "GHSA-1", 1),
        ("old==1.0", "not known: the index has no page of this version", 0),
        ("paged==1.0", "GHSA-1", 1),
        ("nowhere==1.0", None, 3),
    ],
)
def test_what_an_index_tells(
    index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    pin: str, told: str | None, code: int,
) -> None:  # fmt: skip
    """An open advisory of the pinned version fails; of an older one without a page none is known,
    and a project that the index does not have is no pass."""
    lock = tmp_path / "lock"
    lock.write_text(f"newest==2.0 ; python_version < '3.14' \\\n    --hash=sha256:0\n{pin} \\\n")
    assert main(lock, index) == code
    first, *rows = capsys.readouterr().out.splitlines()
    if told is None:
        assert "does not answer" in first
    else:
        assert rows[0].split(maxsplit=2) == [*pin.split("=="), told]


def test_no_advisory_is_open() -> None:
    """For none of the pins; without an index it is skipped."""
    if (code := main(LOCK, index_address())) == 3:
        pytest.skip("the package index does not answer")
    assert code == 0
