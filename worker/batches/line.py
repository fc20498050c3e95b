"""A line of a batch's input, a request; and a line of its output, the answer."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/decisions",
)
METHOD = "POST"
_OK = range(200, 300)


class BatchLine(msgspec.Struct, frozen=True):
    """A request. body: a JSON object, as it was written; number: of the line, from 1"""

    number: int
    custom_id: str
    url: str
    body: bytes

    @property
    def beginning(self) -> bytes:
        """Lines with a common beginning of their prompts are neighbors in this order.

        The fields as they are rendered: first tools and instructions, then what is asked.
        """
        found = msgspec.json.decode(self.body, type=_Prompt)
        parts = (bytes(getattr(found, name)) for name in _Prompt.__struct_fields__)
        return b"\0".join((self.url.encode(), *parts))


class LineProblem(msgspec.Struct, frozen=True):
    """Why a line cannot be asked, as OpenAI's `errors.data` of a batch.

    code  invalid_json_line, missing_required_parameter, invalid_custom_id, duplicate_custom_id,
          invalid_method, invalid_url, url_mismatch, invalid_body or streaming_not_supported
    line  its number, from 1
    """

    code: str
    message: str
    line: int
    param: str | None = None


class LineReader:
    """Checks the lines of one input, one after the other.

    endpoint  the URL that each line must have; None: any of ENDPOINTS
    number    of the last line that was read
    """

    def __init__(self, endpoint: str | None = None) -> None:
        self.endpoint = endpoint
        self.number = 0
        self._seen: dict[str, int] = {}

    def read(self, data: bytes) -> BatchLine | LineProblem | None:
        """The next line, with or without its end; None: it is empty."""
        self.number += 1
        text = data.strip()
        if not text:
            return None
        try:
            given = msgspec.json.decode(text.decode(), type=dict[str, msgspec.Raw])
        except (ValueError, msgspec.MsgspecError, RecursionError):
            return self._problem("invalid_json_line", "This line is not a JSON object.")
        fields = {name: bytes(value) for name, value in given.items()}
        for name in ("custom_id", "method", "url", "body"):
            if fields.get(name, b"null") == b"null":
                return self._problem("missing_required_parameter", f"{name} is missing.", name)
        return self._check(fields)

    def _check(self, fields: dict[str, bytes]) -> BatchLine | LineProblem:
        problem, body = self._problem, fields["body"]
        custom_id, method, url = (_value(fields[name]) for name in ("custom_id", "method", "url"))
        if not isinstance(custom_id, str) or not custom_id:
            return problem("invalid_custom_id", "custom_id must be a text, not empty.", "custom_id")
        if custom_id in self._seen:
            return problem(
                "duplicate_custom_id",
                f"custom_id {custom_id!r} is that of line {self._seen[custom_id]}; each must be "
                "unique in its batch.",
                "custom_id",
            )
        self._seen[custom_id] = self.number
        if method != METHOD:
            return problem("invalid_method", f"method must be {METHOD}, not {method!r}.", "method")
        if url not in ENDPOINTS:
            known = ", ".join(ENDPOINTS)
            return problem("invalid_url", f"url must be one of {known}, not {url!r}.", "url")
        if self.endpoint not in (None, url):
            return problem(
                "url_mismatch", f"url is {url}, the batch's endpoint {self.endpoint}.", "url"
            )
        try:
            asked = msgspec.json.decode(body, type=dict[str, Any])
        except (ValueError, msgspec.MsgspecError, RecursionError):
            return problem("invalid_body", "body must be a JSON object.", "body")
        if asked.get("stream"):
            return problem(
                "streaming_not_supported", "A batch has no streams: leave stream out.", "body"
            )
        return BatchLine(self.number, custom_id, url, body)

    def _problem(self, code: str, message: str, param: str | None = None) -> LineProblem:
        return LineProblem(code, message, self.number, param)


class LineResponse(msgspec.Struct, frozen=True):
    """What the API answered. request_id: of the worker's log"""

    status_code: int
    request_id: str
    body: msgspec.Raw


class LineFailure(msgspec.Struct, frozen=True):
    """Why the API was not asked, or gave no answer."""

    code: str
    message: str


class AnsweredLine(msgspec.Struct, frozen=True):
    """A line of the output: a response of any status, or a failure."""

    id: str
    custom_id: str
    response: LineResponse | None = None
    error: LineFailure | None = None

    @property
    def is_ok(self) -> bool:
        """Whether there is an answer, with a status of 2xx."""
        return self.response is not None and self.response.status_code in _OK


def with_response(custom_id: str, status: int, request_id: str, body: bytes) -> AnsweredLine:
    """A line whose request was answered. A body that is not JSON, as a proxy's, becomes a text."""
    try:
        msgspec.json.decode(body)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        body = msgspec.json.encode(body.decode(errors="replace"))
    response = LineResponse(status, request_id, msgspec.Raw(body))
    return AnsweredLine(_new_id(), custom_id, response)


def with_failure(custom_id: str, code: str, message: str) -> AnsweredLine:
    """A line without a response."""
    return AnsweredLine(_new_id(), custom_id, error=LineFailure(code, message))


def write_line(line: AnsweredLine) -> bytes:
    """One line of JSON, with its end."""
    return msgspec.json.encode(line) + b"\n"


def read_answer(data: bytes) -> AnsweredLine | None:
    """A line of an output; None: it is none, or was cut."""
    try:
        return msgspec.json.decode(data, type=AnsweredLine)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None


_MISSING = msgspec.Raw(b"")


class _Prompt(msgspec.Struct):
    """The fields of all APIs' bodies that make a prompt, in about the order of their texts."""

    model: msgspec.Raw = _MISSING
    tools: msgspec.Raw = _MISSING
    instructions: msgspec.Raw = _MISSING
    system: msgspec.Raw = _MISSING
    messages: msgspec.Raw = _MISSING
    prompt: msgspec.Raw = _MISSING
    input: msgspec.Raw = _MISSING


def _value(text: bytes) -> Any:
    """None: a number that nothing can hold, such as 1e999."""
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return None


def _new_id() -> str:
    return f"batch_req_{uuid.uuid4().hex}"
