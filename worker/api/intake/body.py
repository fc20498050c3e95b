"""A request's body: bounded, timed, decoded. What is wrong is a 400 that names the field; of what
is not known those fields are told that would change the answer."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast, get_args

import msgspec
from litestar import Request
from litestar.exceptions import InternalServerException

from worker import log
from worker.account import account_for
from worker.api.intake.packed_body import packed_body
from worker.errors import LeftError, QueueFullError, RequestError, TooLargeError
from worker.http.connections import INNER
from worker.limits import BODIES, PARTS
from worker.requests.record import current

_MOST = 16  # names that are told
_LENGTH = 64
_log = log.get("service")
_logged: set[str] = set()
_MOST_LOGGED = 256

# Change no answer here.
_HARMLESS = frozenset(
    "user metadata client_metadata store safety_identifier prompt_cache_key "
    "prompt_cache_retention prediction cache_control betas anthropic_version "
    "anthropic_beta context_management provider usage models route id_slot slot_id "
    "cache_prompt n_keep n_discard n_cache_reuse sse_ping_interval api_key "
    "backend_sampling t_max_prompt_ms speculative.n_max speculative.n_min "
    "speculative.p_min speculative.type keep_alive request_id include_obfuscation "
    "cache_salt kv_transfer_params num_ctx num_batch num_gpu main_gpu num_thread "
    "num_keep use_mmap use_mlock numa low_vram f16_kv".split()
)
# Say what happens anyway, beside null, false, 0 and what is empty.
_NEUTRAL: dict[str, Any] = {
    "skip_special_tokens": True, "spaces_between_special_tokens": True, "detokenize": True,
    "length_penalty": 1, "tfs": 1, "tfs_z": 1, "n": 1, "best_of": 1, "modalities": ["text"],
    "use_default_system_prompt": True, "normalize": True, "normalized": True,
    "encoding_type": "float", "service_tier": "auto",
}  # fmt: skip
# Refused: vLLM's fields -> the next step.
_REFUSED = {
    "use_beam_search": "Send n and best_of to /v1/completions.",
    "prompt_logprobs": "/v1/completions and /v1/chat/completions have it.",
    "truncate_prompt_tokens": "Send a shorter prompt; chats have truncation.",
    "return_token_ids": "/v1/completions and /v1/chat/completions have it.",
    "return_tokens_as_token_ids": "/v1/completions and /v1/chat/completions have it.",
}


class _Sender(msgspec.Struct):
    """Who asks: OpenAI's field, and where Anthropic's is."""

    user: Any = None
    metadata: dict[str, Any] | None = None


class _Options(msgspec.Struct):
    """`options` as Ollama's clients send them, where a body has none."""


def unknown_fields(data: bytearray | msgspec.Raw, shape: Any) -> tuple[str, ...]:
    """Names at the top of a body that is read as `shape`, and in its objects, such as Ollama's
    `options`. A shape that is no struct has no names.

    Raises RequestError for one that cannot be left out.
    """
    if not (isinstance(shape, type) and issubclass(shape, msgspec.Struct)):
        return ()
    try:
        given = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # it was mended
        return ()
    objects = _objects(shape)
    found: list[str] = []
    for place in given.keys() & objects.keys():
        found += [f"{place}.{name}" for name in unknown_fields(given[place], objects[place])]
    known = {*shape.__struct_encode_fields__, *objects}
    for name in given.keys() - known - _HARMLESS:
        value = _value(given[name])
        if name in _REFUSED and value is not None and value is not False:
            raise RequestError(f"{name} is not offered here.", param=name, hint=_REFUSED[name])
        if value is not None and (value != _NEUTRAL[name] if name in _NEUTRAL else value):
            found.append(name[:_LENGTH])
    return tuple(sorted(found)[:_MOST])


@functools.cache
def _objects(shape: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """Fields that may be an object -> what that is read as."""
    found: dict[str, type[msgspec.Struct]] = {"options": _Options}
    for field in msgspec.structs.fields(shape):
        for kind in get_args(field.type):
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                found[field.encode_name] = kind
    return found


def _value(raw: msgspec.Raw) -> Any:
    """A small value; a large one is something."""
    if len(bytes(raw)) > _LENGTH:
        return True
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True


HttpRequest = Request[Any, Any, Any]
_LARGE = 2**18
_PART = 2**18  # of a body that is unpacked
_PAUSE_S = 0.01
_MOST_HALVES = 2**17  # and what is between them; they take 0.1 s

T = TypeVar("T")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_OTHER_TYPE = re.compile(r"Expected `([^`]+)`(?:, got `(\w+)`)?")
_OTHER_VALUE = re.compile(r"Invalid (?:enum )?value (.*)", re.DOTALL)
_OTHER_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
# msgspec's names of types -> what people call them.
_JSON_TYPES = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "true, false",
    "array": "a list", "object": "an object",
}  # fmt: skip
_PLACE = re.compile(r" - at `\$\.?([^`]*)`")
_FIELD_OF = re.compile(r" field `([^`]*)`$")  # one that is missing, or not known
# Escapes of UTF-16: \ud83d is the first half of a character, \ude00 a second one.
_FIRST, _SECOND = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPED_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_BRACKET_OR_FIELD = re.compile(
    rb'"(?P<text>(?:[^"\\]|\\.)*+)"(?P<colon>\s*:)?|(?P<bracket>[\[\]{}])'
)
# What is no half as long as it goes, then one half: a body of megabytes is read at once.
_WHOLE_OR_HALF = re.compile(
    rb"(?P<whole>(?:[^\\]++|" + _FIRST + _SECOND + rb"|\\(?!u[dD][89a-fA-F])(?s:.))++)|"
    rb"(?:" + _FIRST + rb"|" + _SECOND + rb")"
)


class SlowBodyError(RequestError, http_status=408, code="timeout"):
    """The body did not arrive in time."""


class Bodies:
    """All bodies that are on their way. One for an application, in the loop's thread."""

    def __init__(
        self,
        seconds: float,
        largest: int,
        largest_shown: int,
        takes_media: Callable[[], bool],
        *,
        is_relayed: bool = False,
        has_users: bool = False,
    ) -> None:
        """
        seconds        that a body may take
        largest        bytes of one
        largest_shown  bytes of one that may show media
        takes_media    whether the model does
        is_relayed     a relay may put in front of one what was written before
        has_users      those that bodies name share, see --fair-by
        """
        self.is_relayed, self.has_users = is_relayed, has_users
        self.seconds = seconds
        self.decoding = asyncio.Lock()
        self._largest, self._largest_shown = largest, max(largest, largest_shown)
        self._takes_media = takes_media
        self._most = max(BODIES.most << 20, self._largest_shown)
        self._held = 0

    @property
    def largest(self) -> int:
        """Bytes of any body."""
        return self._largest_shown

    def check(self, count: int, shape: Any) -> None:
        """Raise TooLargeError for so many bytes of a body of this shape."""
        if count <= self._largest:
            return
        shows = getattr(shape, "shows_media", False) and self._takes_media()
        most = self._largest_shown if shows else self._largest
        if count > most:
            flag = "--max-media-body" if shows and most > self._largest else "--max-body"
            raise TooLargeError(
                "The body is larger than this worker reads.",
                hint=f"{flag} sets how much; now that is {most >> 20} MiB.",
            )

    def hold(self, count: int) -> None:
        """So many bytes more. Raises QueueFullError where those of all are too many."""
        if self._held + count > self._most:
            raise QueueFullError("Too many large bodies are on their way.", hint="Try again.")
        self._held += count

    def release(self, count: int) -> None:
        """So many bytes less."""
        self._held -= count


async def read_json(request: HttpRequest, shape: type[T]) -> T:
    """The body as `shape`; see `read_body`."""
    return await read_body(request, shape, partial(decode_json, shape=shape))


async def read_body(request: HttpRequest, shape: Any, decode: Callable[[bytearray], T]) -> T:
    """What `decode` makes of the body, unpacked. shape: whose limits it has

    Raises RequestError; LeftError where the client left. Litestar raises where it is larger than it
    may be.
    """
    bodies: Bodies = request.app.state["bodies"]
    headers, before, packed = request.headers, 0, None
    if "x-relay-written" in headers:
        before = _length_before(request)
    if "content-encoding" in headers:
        packed = packed_body(", ".join(headers.getall("content-encoding")))
    length = headers.get("content-length", "")
    bodies.check(int(length) if length.isdecimal() else 0, shape)
    data = bytearray()

    def add(part: bytes) -> None:
        nonlocal data
        bodies.hold(len(part))
        data += part
        bodies.check(len(data), shape)

    try:
        async with asyncio.timeout(bodies.seconds):
            async for chunk in request.stream():
                if packed is None:
                    add(chunk)
                    continue
                packed.feed(chunk)
                take = partial(packed.take, _PART)
                while part := await asyncio.to_thread(take) if len(data) > _LARGE else take():
                    add(part)
        if packed is not None:
            packed.check_end()
        if before:
            request.state.written_before = bytes(data[:before])
            del data[:before]
        if len(data) > _LARGE:
            # Decoding holds up the event loop: between large bodies others have a turn.
            async with bodies.decoding:
                await asyncio.sleep(_PAUSE_S)
                return _read_whole(bodies, data, decode)
        return _read_whole(bodies, data, decode)
    except TimeoutError:
        raise SlowBodyError(f"The body did not arrive in {bodies.seconds:g} s.") from None
    except InternalServerException:  # what Litestar calls it
        raise LeftError("The client left before its body was whole.") from None
    finally:
        request.state.body_bytes = len(data)
        bodies.release(len(data))


def _read_whole(bodies: Bodies, data: bytearray, decode: Callable[[bytearray], T]) -> T:
    record = current()
    if bodies.has_users and record is not None and record.account.can_split:
        record.account = account_for(_user_in(data))
    return decode(data)


def _user_in(data: bytearray) -> str:
    """Who asks, as the client says; empty where it does not say, or not in JSON."""
    try:
        body = msgspec.json.decode(data, type=_Sender)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # it is refused, or a form
        return ""
    return str(body.user or (body.metadata or {}).get("user_id") or "")


def _length_before(request: HttpRequest) -> int:
    """Bytes in front of the body that a relay has put there."""
    length = request.headers.get("x-relay-written", "")
    is_relayed: bool = request.app.state["bodies"].is_relayed or INNER in request.scope
    return int(length) if is_relayed and length.isdecimal() and len(length) < 10 else 0


def written_before(request: HttpRequest) -> bytes:
    """What `read_body` found in front of the body; nothing where there was nothing."""
    return getattr(request.state, "written_before", b"")


@contextmanager
def hold_body(request: HttpRequest) -> Generator[None]:
    """The bytes that `read_json` read are on their way still: what is made of them is not ready."""
    bodies: Bodies = request.app.state["bodies"]
    count: int = getattr(request.state, "body_bytes", 0)
    bodies.hold(count)
    try:
        yield
    finally:
        bodies.release(count)


async def until_gone(receive: Any) -> None:
    """Until a client whose body was read leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass


def decode_json(data: bytearray, shape: type[T]) -> T:
    """The body as `shape`; its record knows what of it is not known. Raises RequestError."""
    if len(data) > _LARGE and sum(map(data.count, (b"[", b"{", b":"))) > PARTS.most:
        raise TooLargeError(f"The body holds more than {PARTS.most} lists, objects and fields.")
    found = struct_of(data, shape)
    record = current()
    if record is not None:
        record.unknown = unknown_fields(data, shape)
        for name in record.unknown:
            if name not in _logged and len(_logged) < _MOST_LOGGED:
                _logged.add(name)
                _log.warning("a field is not known", field=name, path=record.route)
    return found


def struct_of(data: bytearray, shape: type[T]) -> T:
    """The body as `shape`, behind a byte order mark. Halves of a character, which some programs cut
    emojis into, are U+FFFD, and 10.0 is the integer 10. Raises RequestError."""
    if data.startswith(BOM_UTF8):
        del data[: len(BOM_UTF8)]
    if not data.strip():
        raise RequestError("The body is empty.", hint="Send a JSON object.")
    try:
        try:
            return _strictly(data, shape)
        except UnicodeDecodeError:
            raise
        except (msgspec.DecodeError, RecursionError) as error:
            if isinstance(error, msgspec.ValidationError) or not _ESCAPED_HALF.search(data):
                raise
            data = bytearray(_WHOLE_OR_HALF.sub(_whole, data, _MOST_HALVES))
            return _strictly(data, shape)
    except msgspec.ValidationError as error:
        raise invalid_field(error, whole=getattr(shape, "names_places", False)) from None
    except UnicodeDecodeError:
        where = _first_wrong(data)
        raise RequestError(f"The body is not valid JSON: byte {where} is not UTF-8.") from None
    except RecursionError:
        field = _deepest(data)
        raise RequestError(
            f"{field or 'The body'} holds too many values in each other.", param=field
        ) from None
    except msgspec.DecodeError as error:
        raise RequestError(f"The body is not valid JSON: {_reason(data, error)}.") from None


def invalid_field(
    error: msgspec.ValidationError, *, whole: bool = False, within: str = ""
) -> RequestError:
    """The same, in the words of people who write JSON.

    whole   its `param` is the place in the body, not the field at the top
    within  where the data stands in the body
    """
    text = str(error)
    found = _PLACE.search(text)
    where = ".".join(filter(None, (within, found[1] if found else "")))
    sentence = text[: found.start()] if found else text
    field = re.split(r"[.\[]", where)[0] or None
    if whole:
        name = _FIELD_OF.search(sentence)
        field = ".".join(filter(None, (where, name[1] if name else ""))) or None
    if missing := _MISSING.fullmatch(sentence):
        inside = f" in {where}" if where else ""
        return RequestError(f"{missing[1]} is missing{inside}.", param=field or missing[1])
    if other := _OTHER_TYPE.fullmatch(sentence):
        wanted = [_JSON_TYPES.get(each, each) for each in other[1].split(" | ")]
        wanted = ", ".join(wanted).split(", ")  # `true or false` is two
        told = f"{', '.join(wanted[:-1])} or {wanted[-1]}" if len(wanted) > 1 else wanted[0]
        said = f"{where or 'The body'} must be {told}"
        if other[2] is not None:
            got = _JSON_TYPES.get(other[2], other[2]).replace(", false", " or false")
            said += f", not {got}"
        return RequestError(f"{said}.", param=field)
    if value := _OTHER_VALUE.fullmatch(sentence):
        return RequestError(f"{where} cannot be {value[1][:_LENGTH]}.", param=field)
    if unknown := _OTHER_FIELD.fullmatch(sentence):
        name = ".".join(filter(None, (where, unknown[1][:_LENGTH] or "''")))
        return RequestError(f"{name} is no field of this body.", param=field)
    return RequestError(f"{sentence}, in {where or 'the body'}.", param=field)


def _strictly(data: bytearray, shape: type[T]) -> T:
    """The body as `shape`. Programs that know one kind of number write 10.0 for an integer."""
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
        return msgspec.convert(_with_integers(msgspec.json.decode(data)), shape)


def _with_integers(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_with_integers(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return {name: _with_integers(each) for name, each in given.items()}
    return value


def _whole(found: re.Match[bytes]) -> bytes:
    return found[0] if found["whole"] else b"\\ufffd"


def _reason(data: bytearray, error: Exception) -> str:
    """What is wrong, and where. msgspec takes all that ends early for truncated, and says no place;
    Python's reader has one."""
    try:
        json.loads(data)
    except json.JSONDecodeError as found:
        at = len(found.doc[: found.pos].encode())
        if not found.doc[found.pos :].strip():
            return f"it ends in the midst of a value, at byte {at}"
        what = found.msg[0].lower() + found.msg[1:].removesuffix(" at")
        return f"{what} at byte {at} (line {found.lineno}, column {found.colno})"
    except (ValueError, RecursionError):
        pass
    return str(error).removeprefix("JSON is malformed: ")


def _deepest(data: bytearray) -> str | None:
    """The field that holds the most values in each other, as far as one looks."""
    depth, most, field, found = 0, 0, None, None
    for token in _BRACKET_OR_FIELD.finditer(data, 0, _LARGE):
        if token["bracket"]:
            depth += 1 if token["bracket"] in b"[{" else -1
            if depth > most:
                most, found = depth, field
        elif depth == 1 and token["colon"]:
            field = token["text"].decode(errors="replace")[:50]
    return found


def _first_wrong(data: bytearray) -> int:
    """Where it is not UTF-8. msgspec counts from the beginning of a text in it."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0
