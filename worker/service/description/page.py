"""The description as pages of HTML, one for each API: no script, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from typing import Any, cast

import msgspec

from worker.api.described import JSON
from worker.service.description.schemas import PLACE, JsonSchema


def type_of(schema: JsonSchema) -> str:
    """HTML: what kind of value it is; shapes are links."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(PLACE)
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        kinds = [type_of(each) for each in schema["anyOf"] if each != {"type": "null"}]
        return " or ".join(dict.fromkeys(kinds))
    if "allOf" in schema:
        return type_of(schema["allOf"][0])
    if "prefixItems" in schema:
        return f"list of {', '.join(type_of(each) for each in schema['prefixItems'])}"
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items') or {})}"
    if schema.get("type") == "object":
        each = schema.get("additionalProperties")
        return f"object of {type_of(each)}" if each else "object"
    if "enum" in schema and "type" not in schema:
        return _words(schema["enum"])
    return str(schema.get("type", "anything"))


def limits_of(schema: JsonSchema) -> str:
    """HTML: what a value may be."""
    found: list[str] = []
    if "enum" in schema and ("type" in schema or "anyOf" in schema):
        found.append(_words(schema["enum"]))
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is not None:
        found.append(f"up to {high:,}" if low is None else f"{low:,} to {high:,}")
    elif low is not None:
        found.append(f"{low:,} and above")
    each: JsonSchema = schema.get("items") or {}
    if "maxItems" in schema:
        found.append(f"{schema.get('minItems', 0):,} to {schema['maxItems']:,} of them")
    characters = schema if "maxLength" in schema else each
    if "maxLength" in characters:
        least = characters.get("minLength", 0)
        found.append(f"{least:,} to {characters['maxLength']:,} characters")
    return ", ".join(found)


def _words(values: list[Any]) -> str:
    return ", ".join(f"<code>{escape(str(value))}</code>" for value in values if value is not None)


_STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem;
  overflow-wrap: anywhere; }
code, pre { font: .9em/1.4 ui-monospace, monospace; }
pre { background: var(--soft); padding: .5rem; white-space: pre-wrap; border-radius: 4px; }
h2 { border-bottom: 1px solid var(--line); margin-top: 2.5rem; font-size: 1.25rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0; list-style: none; }
h3 { margin-top: 2rem; }
h2 code { background: var(--soft); padding: .1rem .3rem; border-radius: 4px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .2rem .5rem;
  border-bottom: 1px solid var(--line); }
th { min-width: 3.5rem; }
""".strip()
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
# Stands for the worker's own address.
ADDRESS = "{address}"
_RESPONSES = "#/components/responses/"
Operation = dict[str, Any]
Group = tuple[Operation, list[str]]  # an operation, and all its methods and paths


def pages_of(document: dict[str, Any]) -> dict[str, str]:
    """API -> its page, of an OpenAPI document that `document_of` made; `""`: the first page.

    `ADDRESS` stands for the server.
    """
    groups = _grouped(document["paths"])
    pages = {"": _page(document, "the API", _overview(document, groups))}
    for tag in document["tags"]:
        operations = [each for each in groups if each[0]["tags"] == [tag["name"]]]
        pages[tag["name"]] = _page(document, tag["name"], _api(document, tag, operations))
    return pages


def _page(document: dict[str, Any], name: str, parts: Iterator[str]) -> str:
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}: {name}")
    links = [f'<li><a href="?api={tag["name"]}">{tag["name"]}</a></li>' for tag in document["tags"]]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f"<header><h1>{title}</h1>",
            '<nav aria-label="APIs"><ul><li><a href="docs">Overview</a></li>',
            *links,
            "</ul></nav></header><main>",
            *parts,
            "</main></body></html>\n",
        ]
    )


def _overview(document: dict[str, Any], groups: list[Group]) -> Iterator[str]:
    yield from (f"<p>{_prose(part)}</p>" for part in document["info"]["description"].split("\n\n"))
    yield f"<p>{_key(document)}</p>"
    yield f"<p>This worker is at <code>{ADDRESS}</code>.</p>"
    yield '<p>For programs: <a href="openapi.json">openapi.json</a>, OpenAPI 3.1.</p>'
    for tag in document["tags"]:
        name = tag["name"]
        yield f'<section><h2><a href="?api={name}">{name}</a></h2>'
        yield f"<p>{_prose(tag['description'])}</p><ul>"
        for operation, names in groups:
            if operation["tags"] == [name]:
                shown = " ".join(f"<code>{escape(each)}</code>" for each in names)
                yield f"<li>{shown} {_prose(operation['summary'])}</li>"
        yield "</ul></section>"


def _api(document: dict[str, Any], tag: dict[str, Any], groups: list[Group]) -> Iterator[str]:
    yield f"<p>{_prose(tag['description'])}</p>"
    responses: dict[str, Any] = document["components"]["responses"]
    for operation, names in groups:
        yield from _operation(operation, names, responses)
    yield from _shapes(_named(groups, responses, document["components"]["schemas"]))


def _named(value: Any, responses: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """The schemas that a part of the document refers to, and those that they refer to."""
    found: dict[str, Any] = {}
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list | tuple):
            waiting += cast("list[Any]", part)
        elif isinstance(part, dict):
            fields = cast("dict[str, Any]", part)
            waiting += fields.values()
            place = str(fields.get("$ref", ""))
            name = place.rpartition("/")[2]
            if place.startswith(_RESPONSES):
                waiting.append(responses[name])
            elif place.startswith(PLACE) and name not in found:
                found[name] = schemas[name]
                waiting.append(schemas[name])
    return found


def _key(document: dict[str, Any]) -> str:
    if {} in document["security"]:
        return "This worker asks for no key."
    return _prose("This worker asks for a key: `Authorization: Bearer KEY` or `x-api-key: KEY`.")


def _prose(text: str) -> str:
    """Backticks are code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def _grouped(paths: dict[str, Any]) -> list[Group]:
    found: list[Group] = []
    for path, methods in paths.items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            plain = {key: value for key, value in operation.items() if key != "operationId"}
            same = [names for other, names in found if other == plain]
            if same:
                same[0].append(name)
            else:
                found.append((plain, [name]))
    return found


def _operation(operation: Operation, names: list[str], shared: dict[str, Any]) -> Iterator[str]:
    shown = " ".join(f"<code>{escape(name)}</code>" for name in names)
    yield f"<article><h2>{shown}</h2><p><strong>{_prose(operation['summary'])}.</strong> "
    yield f"{_prose(operation['description'])}</p>"
    for parameter in operation.get("parameters", ()):
        yield f"<p><code>{parameter['name']}</code>: {_prose(parameter['description'])}</p>"
    body = operation.get("requestBody", {}).get("content", {}).get(JSON)
    if body:
        yield f"<p>Body: {_body(body['schema'])}</p>"
        for name, example in body["examples"].items():
            yield f"<p>{escape(name.capitalize())}:</p><pre>{_curl(names[0], example)}</pre>"
    yield _table("status", "answer")
    for status, response in operation["responses"].items():
        if "$ref" in response:
            response = shared[response["$ref"].removeprefix(_RESPONSES)]
        yield f'<tr><th scope="row">{status}</th><td>{_answer(response)}</td></tr>'
    yield "</table></article>"


def _table(*columns: str) -> str:
    heads = "".join(f'<th scope="col">{column}</th>' for column in columns)
    return f"<table><tr>{heads}</tr>"


def _body(schema: dict[str, Any]) -> str:
    needs: list[str] = []
    if "allOf" in schema:
        schema, more = schema["allOf"]
        needs = more["required"]
    needed = " and ".join(f"<code>{name}</code>" for name in needs)
    return type_of(schema) + (f" with {needed}" if needed else "")


def _curl(name: str, example: dict[str, Any]) -> str:
    path = name.partition(" ")[2]
    body = msgspec.json.encode(example["value"]).decode().replace("'", "'\\''")
    return escape(f"curl -sN {ADDRESS}{path} -d '{body}'")


def _answer(response: dict[str, Any]) -> str:
    said = "<br>".join(_prose(line) for line in response["description"].split("\n"))
    forms = [
        f"<code>{media}</code>: {_form(content['schema'])}"
        for media, content in response["content"].items()
    ]
    return "<br>".join([said, *forms])


def _form(schema: JsonSchema) -> str:
    """Of an answer; of the data where it is an event."""
    event: JsonSchema = schema.get("anyOf", [schema])[0]
    if "data" not in event.get("properties", {}):
        return type_of(schema)
    told = type_of(event["properties"]["data"]["contentSchema"])
    return told if event is schema else f"{told}; <code>[DONE]</code> is the last"


def _shapes(schemas: dict[str, Any]) -> Iterator[str]:
    yield '<section><h2 id="shapes">Shapes</h2>'
    for name, schema in sorted(schemas.items()):
        yield f'<article><h3 id="{name}">{name}</h3><p>{_prose(schema["description"])}</p>'
        if schema["properties"]:
            yield _table("field", "type", "meaning")
        for field, kind in schema["properties"].items():
            mark = " <em>needed</em>" if field in schema.get("required", ()) else ""
            limits = limits_of(kind)
            limits = f"<br><small>{limits}</small>" if limits else ""
            yield f'<tr><th scope="row"><code>{field}</code>{mark}</th><td>{type_of(kind)}{limits}'
            yield f"</td><td>{_prose(kind.get('description', ''))}</td></tr>"
        yield "</table></article>" if schema["properties"] else "</article>"
    yield "</section>"
