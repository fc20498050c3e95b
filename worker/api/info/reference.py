"""The API reference at `/docs`: Swagger UI over /openapi.json, served by the worker alone."""

from __future__ import annotations

import functools
from pathlib import Path

_HERE = Path(__file__).parent
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>API reference</title>
<link rel="icon" href="data:,">
<link rel="preload" as="fetch" crossorigin href="/openapi.json">
<link rel="stylesheet" href="/docs/swagger-ui.css">
<style>
  nav { display: flex; flex-wrap: wrap; gap: 0 1.5em; padding: 1em 2em; font: 1em sans-serif }
  nav a { color: inherit; padding: .5em 0; text-decoration: none }
  nav a[aria-current] { font-weight: bold; box-shadow: 0 2px }
  html.dark-mode nav { color: #e4e6e6 }
</style>
<nav aria-label="APIs"></nav>
<main id="reference"></main>
<script src="/docs/swagger-ui.js"></script>
<script src="/docs/start.js"></script>
</html>
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
            found = (_HERE / name).read_bytes()
        case _:
            found = (_HERE / "swagger" / name).read_bytes()
    return found, _TYPES[Path(name).suffix]
