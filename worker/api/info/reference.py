"""The API reference at `/docs`: Swagger UI over /openapi.json, served by the worker alone."""

from __future__ import annotations

import functools
from pathlib import Path

_VENDOR = Path(__file__).parent / "swagger"
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>API reference</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
<div id="reference"></div>
<script src="/docs/swagger-ui.js"></script>
<script src="/docs/start.js"></script>
</html>
"""
_START = """SwaggerUIBundle({
  url: "/openapi.json", dom_id: "#reference", docExpansion: "none", deepLinking: true,
  defaultModelsExpandDepth: -1, filter: true, validatorUrl: null, persistAuthorization: false,
});
"""
# Swagger UI sets styles on elements, and draws its icons from data: addresses.
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_TYPES = {".css": "text/css", ".js": "text/javascript", "": "text/html"}


FILES = ("start.js", "swagger-ui.css", "swagger-ui.js")


@functools.cache
def file(name: str) -> tuple[bytes, str]:
    """The bytes and the media type of one of FILES; `""` is the page."""
    match name:
        case "":
            found = _PAGE.encode()
        case "start.js":
            found = _START.encode()
        case _:
            found = (_VENDOR / name).read_bytes()
    return found, _TYPES[Path(name).suffix]
