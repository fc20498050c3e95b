"""The page at `/`: one HTML document, made of the files beside this module.

It holds no secret and no data. What it shows it asks for over the API, with the key where there is
one, so it is served before the routes are there and without the key.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path
from typing import Any

from worker.errors import ForbiddenError
from worker.http.replies import WholeAnswer

_HERE = Path(__file__).parent
# In this order they are one script: a file uses names of those before it when it is read, and of
# all when it runs.
_SCRIPTS = tuple(
    "dom worker live requests gauges sampling tokens generation write markdown "
    "conversation turns chat media store history single decide "
    "compare code main".split()
)


@functools.cache
def document() -> tuple[bytes, str]:
    """The page, and the Content-Security-Policy that lets nothing else run in it.

    No scripts but these two, no assets from anywhere, requests to this worker only, no frame around
    it, and no text that is read as HTML (Trusted Types).
    """
    style = (_HERE / "page.css").read_text("utf-8")
    parts = [(_HERE / "script" / f"{name}.js").read_text("utf-8") for name in _SCRIPTS]
    script = "\n".join(["", *parts])
    page = (_HERE / "page.html").read_text("utf-8")
    library = (_HERE / "vendor" / "marked.js").read_text("utf-8")
    page = page.replace("{{style}}", style).replace("{{library}}", library)
    page = page.replace("{{script}}", script)
    policy = {
        "default-src": "'none'",
        "script-src": f"{_source_of(library)} {_source_of(script)}",
        "style-src": _source_of(style),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return page.encode(), "; ".join(f"{name} {value}" for name, value in policy.items())


def _source_of(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def is_wanted(scope: Any) -> bool:
    """Whether a request for `/` is for the page: it would rather have HTML than JSON.

    A browser says so; curl and programs send `*/*` or nothing, and get health.
    """
    return scope["method"] in ("GET", "HEAD") and _quality(scope, "html") > _quality(scope, "json")


def _quality(scope: Any, kind: str) -> float:
    """How much the headers want `text/html` or `application/json`, 0 to 1 (RFC 9110, 12.5.1)."""
    names = {"html": ("text/html", "text/*"), "json": ("application/json", "application/*")}[kind]
    fields = [value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"]
    found: dict[str, float] = {}
    for part in ",".join(fields).split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weights = [text[2:] for text in parameters if text.startswith("q=")]
        try:
            found[name] = float(weights[0]) if weights else 1.0
        except ValueError:
            found[name] = 0.0
    return next((found[name] for name in (*names, "*/*") if name in found), 0.0)


def refusal_of(scope: Any) -> ForbiddenError | None:
    """The error for a page of another origin whose script asks; who follows a link sends no Origin.

    The worker's state and the key do not matter: the page shows the one and asks for the other.
    """
    headers = dict(scope["headers"])
    origin = headers.get(b"origin")
    if origin is None or origin.partition(b"://")[2] == headers.get(b"host"):
        return None
    return ForbiddenError("Pages of other origins may not have this page.")


def answer() -> WholeAnswer:
    """The page as an answer; nobody keeps it, so a newer worker's is there at once."""
    body, policy = document()
    headers = {
        "content-type": "text/html; charset=utf-8",
        "content-length": str(len(body)),
        "content-security-policy": policy,
        "cache-control": "no-store",
        "vary": "accept",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    return WholeAnswer(200, fields, body)
