"""What of a body chooses its replica: the model's name, and what it has in common with others."""

from __future__ import annotations

import sys
import zlib
from hashlib import blake2b
from typing import Any, cast

import msgspec

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_GZIP = 31  # zlib's word for gzip with the largest window
_WINDOW_LOG = 23  # RFC 9659: what a Content-Encoding may make its reader keep
# Characters of a turn, or of a prompt, that count; chosen by `python -m benchmarks affinity`.
# By 256 prompts that begin alike are all one, and 4,096 are not the same in the next turn.
HEAD = 1024


class BodyHead(msgspec.Struct):
    """Fields of all APIs of the worker; what is not here does not choose.

    A field of a wrong type is the worker's to refuse, so all may be anything.
    """

    model: Any = None
    stream: Any = None
    job_id: Any = None
    prompt_cache_key: Any = None
    system: Any = None
    instructions: Any = None
    messages: Any = None
    prompt: Any = None
    input: Any = None
    input_prefix: Any = None
    state: Any = None


_decoder = msgspec.json.Decoder(BodyHead)
_NOTHING = BodyHead()


def unpack(body: bytes, coding: str, most: int) -> bytes:
    """A body with its Content-Encoding undone, to look into it; nothing where it is longer than
    `most`, damaged, or of another coding: the worker says what is wrong."""
    match coding.strip().lower():
        case "" | "identity":
            return body
        case "gzip" | "x-gzip":
            stream = zlib.decompressobj(_GZIP)
        case "zstd":
            stream = zstd.ZstdDecompressor(
                options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
            )
        case _:
            return b""
    try:
        plain = stream.decompress(body, most + 1)
    except (zlib.error, zstd.ZstdError):
        return b""
    return plain if stream.eof and len(plain) <= most else b""


def head_of(body: bytes, content_type: str = "") -> BodyHead:
    """The fields; none of them where the body is no JSON object, nor a form whose first part is
    one."""
    if content_type.lower().startswith("multipart/form-data"):
        boundary, _, rest = body.partition(b"\r\n")
        body = rest.partition(b"\r\n\r\n")[2].partition(b"\r\n" + boundary)[0]
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NOTHING


def session_of(asked: BodyHead, header: str | None) -> bytes | None:
    """A hash of what the client calls the session: its header, else OpenAI's field; or None."""
    name = header or asked.prompt_cache_key
    return _hash([name]) if isinstance(name, str) and name else None


def prefix_of(asked: BodyHead) -> bytes | None:
    """A hash of the head of the prompt, or None where there is no prompt.

    Of a conversation that is all up to its first turn of the user, at most HEAD characters of each
    turn: the turns that come later leave it as it is, and conversations that begin with the same
    instructions do not all follow one another. Of a text, and of a decision's state, it is the
    first HEAD characters.
    """
    parts: list[str] = [_text(asked.system), _text(asked.instructions)]
    turns: Any = asked.input if asked.messages is None else asked.messages
    if isinstance(turns, list):
        for turn in cast("list[Any]", turns):
            parts.append(_text(turn))
            if isinstance(turn, dict) and cast("dict[str, Any]", turn).get("role") == "user":
                break
    else:
        parts.append(_text(turns))
    parts += [_text(asked.prompt), _text(asked.input_prefix), _text(asked.state)]
    return _hash(parts) if any(parts) else None


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text[:HEAD]


def _hash(parts: list[str]) -> bytes:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(f"{len(part)} ".encode() + part.encode("utf-8", "surrogatepass"))
    return digest.digest()
