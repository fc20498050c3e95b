"""What the log says of tools that nobody runs here."""

from __future__ import annotations

import msgspec
import pytest
from structlog.testing import capture_logs

from worker import log
from worker.api.common.talk.tools import DeclaredTool, Tools


def test_a_type_is_told_once() -> None:
    """As clients send it with each request; in one line, and a part of it where it is long."""
    log.configure("json")
    try:
        with capture_logs() as lines:
            for kind in ("looks_up", "looks_up", "a\nb", "x" * 5_000, "x" * 6_000):
                Tools().add_kind(kind)
    finally:
        log.configure("console", quiet=True)
    assert [line["type"] for line in lines] == ["looks_up", "a\\nb", "x" * 40]


@pytest.mark.parametrize("name", ["parameters", "input_schema", "inputSchema"])
def test_a_schema_under_any_name(name: str) -> None:
    """OpenAI's, Anthropic's and MCP's."""
    schema = {"type": "object", "properties": {"at": {"type": "string"}}}
    given = msgspec.convert({"name": "sky", name: schema}, DeclaredTool)
    assert given.declared.tool.parameters == schema
