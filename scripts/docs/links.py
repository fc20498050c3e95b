"""A hook of MkDocs: links that leave docs/ become the names of their files."""

from __future__ import annotations

import re
from typing import Any

_LINK = re.compile(r"(!?)\[([^]]*)\]\(\.\./([^)#]+)[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page without links to files that are not a part of the site."""
    return _LINK.sub(lambda m: "" if m[1] else f"{m[2]} (`{m[3]}`)", markdown)
