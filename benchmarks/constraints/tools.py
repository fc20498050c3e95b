"""Schemas in the manner of what MCP servers and applications send: names -> schemas.

They have the habits of their makers: Pydantic's `anyOf` with null and `$defs`, Zod's `$schema` and
closed objects, OpenAPI's formats and bounds, hand-written ones that say little.
"""

from __future__ import annotations

from typing import Any

from worker.grammar.schema import Schema

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 1, "maximum": 100, "default": 10}
FLAG: Schema = {"type": "boolean", "default": False}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}


def tool(required: str = "", /, **properties: Schema) -> Schema:
    """A hand-written schema; `required` names properties, apart by spaces."""
    return {"type": "object", "properties": properties, "required": required.split()}


def zod(required: str = "", /, **properties: Schema) -> Schema:
    """As Zod writes it."""
    return {**tool(required, **properties), "additionalProperties": False, **DRAFT_7}


def maybe(schema: Schema) -> Schema:
    """As Pydantic writes an optional field."""
    return {"anyOf": [schema, {"type": "null"}], "default": None, "title": "X"}


def items(schema: Schema, **more: Any) -> Schema:
    """A list."""
    return {"type": "array", "items": schema, **more}


def one_of(*values: str) -> Schema:
    """A text out of these."""
    return {"type": "string", "enum": list(values)}


SHA: Schema = {"type": "string", "pattern": "^[0-9a-f]{7,40}$"}
REPOSITORY = {"owner": {**TEXT, "description": "Repository owner"}, "repo": TEXT}
BLOCK: Schema = {
    "type": "object",
    "properties": {
        "type": one_of("paragraph", "heading_1", "to_do", "toggle"),
        "text": {"type": "string", "maxLength": 2000},
        "checked": maybe({"type": "boolean"}),
        "children": items({"$ref": "#/$defs/Block"}),
    },
    "required": ["type", "text"],
}
CARD = tool(
    "kind number", kind={"const": "card"}, number={"type": "string", "pattern": "^[0-9]{12,19}$"}
)
TRANSFER = tool(
    "kind iban",
    kind={"const": "transfer"},
    iban={"type": "string", "minLength": 15, "maxLength": 34},
)

TOOLS: dict[str, Schema] = {
    "read_file": zod("path", path=TEXT, head={"type": "number"}, tail={"type": "number"}),
    "write_file": zod("path content", path=TEXT, content=TEXT),
    "edit_file": zod(
        "path edits",
        path=TEXT,
        edits=items(zod("oldText newText", oldText=TEXT, newText=TEXT)),
        dryRun=FLAG,
    ),
    "list_directory": zod("path", path=TEXT, sortBy=one_of("name", "size")),
    "search_files": zod("path pattern", path=TEXT, pattern=TEXT, excludePatterns=items(TEXT)),
    "git_status": tool("repo_path", repo_path={"title": "Repo Path", "type": "string"}),
    "git_log": tool("repo_path", repo_path=TEXT, max_count=COUNT, since=maybe(TEXT)),
    "git_show": tool("repo_path revision", repo_path=TEXT, revision=SHA),
    "git_commit": tool("message", message={"type": "string", "minLength": 1, "maxLength": 500}),
    "create_issue": zod(
        "owner repo title", **REPOSITORY, title=TEXT, body=TEXT, labels=items(TEXT),
        assignees=items(TEXT), milestone={"type": "number"},
    ),
    "search_repositories": zod("query", query=TEXT, page={"type": "number"}, perPage=COUNT),
    "create_pull_request": zod(
        "owner repo title head base", **REPOSITORY, title=TEXT, head=TEXT, base=TEXT, draft=FLAG
    ),
    "merge": zod("owner repo", **REPOSITORY, method=one_of("merge", "squash", "rebase")),
    "post_message": tool("channel_id text", channel_id={"pattern": "^[CDG][A-Z0-9]{8,}$"},
                         text=TEXT, thread_ts={"type": "string", "pattern": "^\\d+\\.\\d{6}$"}),
    "query": tool("sql", sql=TEXT, params=items({"type": ["string", "number", "null"]})),
    "navigate": tool("url", url={"type": "string", "format": "uri"}, timeout={"type": "number",
                     "minimum": 0, "maximum": 120_000}),
    "screenshot": tool("name", name=TEXT, width=COUNT, fullPage=FLAG, selector=TEXT),
    "fill": tool("selector value", selector=TEXT, value=TEXT),
    "fetch": {"title": "Fetch", "description": "x", **tool(
        "url", url={"format": "uri", "minLength": 1, "type": "string"},
        max_length={"exclusiveMaximum": 1_000_000, "exclusiveMinimum": 0, "type": "integer"},
        raw=FLAG)},
    "create_entities": tool("entities", entities=items(tool(
        "name entityType observations", name=TEXT, entityType=TEXT, observations=items(TEXT)))),
    "sequential_thinking": tool(
        "thought nextThoughtNeeded thoughtNumber", thought=TEXT,
        nextThoughtNeeded={"type": "boolean"}, thoughtNumber={"type": "integer", "minimum": 1}),
    "convert_time": tool("source time target", source=TEXT, target=TEXT,
                         time={"type": "string", "pattern": "^([01]\\d|2[0-3]):[0-5]\\d$"}),
    "directions": zod("origin destination", origin=TEXT, destination=TEXT,
                      mode=one_of("driving", "walking", "bicycling", "transit")),
    "place": tool("latitude longitude", latitude={"type": "number", "minimum": -90, "maximum": 90},
                  longitude={"type": "number", "minimum": -180, "maximum": 180}),
    "web_search": tool("query", query={"type": "string", "maxLength": 400}, count=COUNT,
                       freshness=maybe(one_of("pd", "pw", "pm"))),
    "create_page": {**tool("title children", title=TEXT, children=items({"$ref": "#/$defs/Block"},
                    maxItems=100)), "$defs": {"Block": BLOCK}},
    "run_container": {**tool("image", image=TEXT, ports=items({"type": "integer", "minimum": 1,
                      "maximum": 65_535}), env={"type": "object", "patternProperties":
                      {"^[A-Z_][A-Z0-9_]*$": TEXT}, "additionalProperties": False})},
    "apply_manifest": tool("manifest", manifest={"type": "object"}, namespace=TEXT,
                           dryRun=one_of("none", "client", "server")),
    "pay": tool("amount method", amount={"type": "number", "exclusiveMinimum": 0,
                "multipleOf": 0.01}, currency=one_of("EUR", "USD"),
                method={"oneOf": [CARD, TRANSFER]}),
    "create_event": tool("summary start end", summary=TEXT,
                         start={"type": "string", "format": "date-time"},
                         end={"type": "string", "format": "date-time"},
                         attendees=items({"type": "string", "format": "email"}, maxItems=50)),
    "send_email": tool("to subject", to=items({"type": "string", "format": "email"}, minItems=1),
                       subject=TEXT, body=TEXT, priority={"type": "integer", "enum": [1, 2, 3]}),
    "set_labels": tool("labels", labels={"type": "object", "additionalProperties": TEXT,
                       "maxProperties": 20}),
    "range": tool("cells", cells={"type": "array", "prefixItems": [TEXT, {"type": "integer"}],
                  "items": False, "minItems": 2}, id={"type": "string", "format": "uuid"}),
    "filter": {**tool("where", where={"$ref": "#/definitions/node"}), "definitions": {"node": {
        "anyOf": [tool("field op value", field=TEXT, op=one_of("=", "<", ">"),
                       value={"type": ["string", "number", "boolean"]}),
                  tool("all", all=items({"$ref": "#/definitions/node"}, minItems=1))]}}},
    "no_arguments": {"type": "object", "properties": {}},
    "extended": {"allOf": [{"$ref": "#/$defs/base"}, tool("limit", limit=COUNT)],
                 "$defs": {"base": tool("query", query=TEXT)}},
}  # fmt: skip
