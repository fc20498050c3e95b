"""Readers: from an option's text to its value. A ValueError says what is wrong with the text.

No message repeats the text of a key or of an address, because both may be secret.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

_MAX_NAME = 512
_MAX_TEXT_FILE = 2**20
HEARTBEAT_PATH = "/v1/worker-heartbeat"
_HOST_NAME = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_WHERE = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_LONGEST_PATTERN = 256
# What the expressions of Python and of C++ (ECMAScript's) do not have in common.
_NOT_SHARED = re.compile(r"[^ -~]|\(\?[^:=!]|\\[^\W0-9dDwWsSbB]|\[\[|[*+?}]\+")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*(s|m|min|h|)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
AUTO = -2  # as a number: what fits, or what is fastest
# llama-server's letters for samplers, in its order, which is ours too.
SAMPLERS = {
    "e": "penalties", "d": "dry", "s": "top_n_sigma", "k": "top_k", "y": "typ_p", "p": "top_p",
    "m": "min_p", "x": "xtc", "t": "temperature", "i": "infill",
    "a": "adaptive_p",
}  # fmt: skip
SAMPLERS_IN_FRONT = ("penalties", "dry")
ANY_ORIGIN, LOCAL_ORIGINS = "*", "localhost"
ANY_HOST = "*"


def _without_python(text: str) -> str:
    """The text of a number; ValueError for `1_0`, which only Python takes for one."""
    if "_" in text:
        raise ValueError
    return text


def integer(low: int, high: int) -> Callable[[str], int]:
    """Reads whole numbers from `low` to `high`."""

    def read(text: str) -> int:
        try:
            value = int(_without_python(text))
        except ValueError:
            raise ValueError(f"must be a whole number, not {text!r}") from None
        if not low <= value <= high:
            raise ValueError(f"must be from {low} to {high}, not {value}")
        return value

    return read


def integer_or_auto(low: int, high: int) -> Callable[[str], int]:
    """Reads whole numbers from `low` to `high`; -1 is AUTO."""
    return lambda text: AUTO if text.strip() == "-1" else integer(low, high)(text)


def number(low: float, high: float) -> Callable[[str], float]:
    """Reads numbers from `low` to `high`."""

    def read(text: str) -> float:
        try:
            value = float(_without_python(text))
        except ValueError:
            value = math.nan
        if math.isnan(value):
            raise ValueError(f"must be a number, not {text!r}")
        if not low <= value <= high:
            raise ValueError(f"must be from {low:g} to {high:g}, not {text}")
        return value

    return read


def duration(low: float, high: float) -> Callable[[str], float]:
    """Reads `90s`, `5m`, `1.5h` or a number of seconds, from `low` to `high` seconds."""

    def read(text: str) -> float:
        found = _DURATION.fullmatch(text.strip().lower())
        if found is None:
            raise ValueError(f"must be a time such as 90s, 5m or 1h, not {text!r}")
        value = float(found[1]) * _SECONDS[found[2]]
        if not low <= value <= high:
            raise ValueError(f"must be from {low:g}s to {high / 3600:g}h, not {text}")
        return value

    return read


_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([KMGT]?)(i?)B?", re.IGNORECASE)


def size(text: str) -> int:
    """Bytes, such as 6GiB, 800M or 6GB, which is less. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise ValueError(f"must be a size such as 6GiB or 800MiB, not {text!r}")
    power = " KMGT".index(match[2].upper() or " ")
    is_decimal = match[2] and not match[3] and text.strip().upper().endswith("B")
    return int(float(match[1]) * (1000 if is_decimal else 1024) ** power)


_CELLS = re.compile(r"k:(\w+)/v:(\w+)|(\w+)")


def cells(*types: str) -> Callable[[str], tuple[str, str]]:
    """Reads types of keys and values: `q8_0`, or `k:q8_0/v:q4_0`."""
    one = one_of(*types)

    def read(text: str) -> tuple[str, str]:
        match = _CELLS.fullmatch(text.strip().lower())
        if match is None:
            raise ValueError(f"must be a type such as q8_0, or k:q8_0/v:q4_0, not {text!r}")
        keys, values = (match[3], match[3]) if match[3] else (match[1], match[2])
        return one(keys), one(values)

    return read


def cells_list(*types: str) -> Callable[[str], tuple[tuple[str, str], ...]]:
    """Reads several of `cells`, behind commas."""
    one = cells(*types)
    return lambda text: tuple(dict.fromkeys(map(one, text.split(","))))


def inverse(low: float, high: float) -> Callable[[str], float]:
    """Reads a number whose inverse is from `low` to `high`; that is the value."""
    return lambda text: 1 / number(1 / high, 1 / low)(text)


def overrides(text: str) -> tuple[tuple[str, bool | int | float | str], ...]:
    """KEY=TYPE:VALUE with a type of llama-server's, several of them separated by commas. Raises
    ValueError."""
    found: list[tuple[str, bool | int | float | str]] = []
    for part in re.split(r",(?=[\w.-]+=\w+:)", text):
        match = re.fullmatch(r"([\w.-]{1,127})=(int|float|bool|str):(.*)", part, re.DOTALL)
        if match is None:
            raise ValueError("must be KEY=TYPE:VALUE, of type int, float, bool or str")
        key, kind, value = match.groups()
        match kind:
            case "int":
                found.append((key, integer(-(2**31), 2**32 - 1)(value)))
            case "float":
                found.append((key, number(-3e38, 3e38)(value)))
            case "bool":
                found.append((key, switch(value)))
            case _:
                if len(value.encode()) > 127 or "\0" in value:
                    raise ValueError(f"must have a text of at most 127 bytes for {key}")
                found.append((key, value))
    return tuple(found)


def one_of(*names: str) -> Callable[[str], str]:
    """Reads one of `names`, in any case of letters."""

    def read(text: str) -> str:
        if text.lower() not in names:
            raise ValueError(f"must be one of {', '.join(names)}, not {text!r}")
        return text.lower()

    return read


def nonempty(text: str) -> str:
    """Any text that is not empty. Raises ValueError."""
    if not text:
        raise ValueError("must not be empty")
    return text


def there(text: str) -> tuple[str, ...]:
    """A folder that is there. Raises ValueError."""
    if not Path(nonempty(text)).is_dir():
        raise ValueError(f"must name a folder, and {text} is none")
    return (text,)


def media_folder(text: str) -> str:
    """A folder that is there, as a path from the root."""
    return str(Path(*there(text)).resolve())


def folder(text: str) -> str:
    """A folder that this process can write to, or one that it can make. Raises ValueError."""
    place = Path(nonempty(text)).absolute()
    try:
        while not place.exists():
            place = place.parent
    except OSError as error:
        raise ValueError(f"must name a folder that can be reached: {error.strerror}") from None
    if not place.is_dir():
        raise ValueError(f"must name a folder, and {place} is a file")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ValueError(f"must name a folder that can be written to, and {place} cannot")
    return text


def name(text: str) -> str:
    """A name that a manager gives: one printable line. Raises ValueError."""
    if not text or len(text) > _MAX_NAME or not text.isprintable():
        raise ValueError(f"must be 1 to {_MAX_NAME} printable characters")
    return text


def switch(text: str) -> bool:
    """on or off; also true and false, yes and no, 1 and 0. Raises ValueError."""
    if text.lower() in ("1", "true", "on", "yes"):
        return True
    if text.lower() in ("0", "false", "off", "no"):
        return False
    raise ValueError(f"must be on or off, not {text!r}")


def switch_to(on: str, off: str | None) -> Callable[[str], str | None]:
    """Reads a switch that stands for a word; None: for none."""
    return lambda text: on if switch(text) else off


def verbosity(text: str) -> str:
    """llama-server's number for how much is logged, as a level."""
    return ("error", "error", "warning", "info", "debug")[min(integer(0, 2**31 - 1)(text), 4)]


def logit_biases(most: int) -> Callable[[str], tuple[tuple[int, float], ...]]:
    """Reads TOKEN_ID(+/-)BIAS as llama-server has it, several of them separated by commas; a bias
    beyond `most` is `most`."""

    def read(text: str) -> tuple[tuple[int, float], ...]:
        found: list[tuple[int, float]] = []
        for part in text.split(","):
            match = re.fullmatch(r"\s*(\d{1,10})([+-].+)", part)
            if match is None:
                raise ValueError(
                    f"must be TOKEN_ID+BIAS or TOKEN_ID-BIAS, such as 15043+1, not {part!r}"
                )
            bias = number(-math.inf, math.inf)(match[2])
            found.append((int(match[1]), max(-most, min(most, bias))))
        return tuple(found)

    return read


def opposite(text: str) -> bool:
    """A switch that turns something off."""
    return not switch(text)


def load_mode(text: str) -> bool | None:
    """llama-server's word for how a file is read; True where it means that the file is mapped."""
    modes = {"none": False, "dio": False, "auto": None, "mmap": True}
    return modes[one_of(*modes)(text)]


def num_predicted(text: str) -> int:
    """Tokens to write, at most; -1, and -2 as llama-server has it: no limit."""
    return max(-1, integer(-2, 2**31 - 1)(text))


def layers(text: str) -> int:
    """A number of layers, all, or auto."""
    if text.lower() == "auto":
        return AUTO
    return 10_000 if text.lower() == "all" else integer(-1, 10_000)(text)


def every_layer(text: str) -> int:
    """A switch that stands for a number of layers: all, or none."""
    return 10_000 if switch(text) else 0


def placements(text: str) -> tuple[tuple[str, str], ...]:
    """REGEX=DEVICE, several of them separated by commas. Python and C++ read them alike. Raises
    ValueError."""
    found: list[tuple[str, str]] = []
    for part in text.split(","):
        pattern, _, device = part.rpartition("=")
        if not pattern or not device:
            raise ValueError("must be REGEX=DEVICE, such as exps=CPU")
        if len(pattern) > _LONGEST_PATTERN or _NOT_SHARED.search(pattern):
            raise ValueError(f"has an expression that is too long or too clever: {pattern[:100]!r}")
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"has an expression that is none: {pattern!r}: {error}") from None
        found.append((pattern, device))
    return tuple(found)


def names(text: str) -> tuple[str, ...]:
    """Names, separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


class AdapterSpec(msgspec.Struct, frozen=True):
    """An adapter's file, its name where one is given, and its scale."""

    file: str
    name: str | None = None
    scale: float = 1.0


def adapters(text: str) -> tuple[AdapterSpec, ...]:
    """FILE, FILE=NAME or FILE=NAME:SCALE, separated by commas. Raises ValueError."""
    found: list[AdapterSpec] = []
    for part in names(text):
        file, equals, named = part.rpartition("=")
        if not equals:
            found.append(AdapterSpec(part))
            continue
        called, colon, scale = named.rpartition(":")
        called = called if colon else named
        if not file or not called:
            raise ValueError(f"must be FILE, FILE=NAME or FILE=NAME:SCALE, not {part!r}")
        found.append(AdapterSpec(file, name(called), _SCALE(scale) if colon else 1.0))
    return tuple(found)


def scaled_adapters(text: str) -> tuple[AdapterSpec, ...]:
    """FILE:SCALE, separated by commas. Raises ValueError."""
    parts = [part.rpartition(":") for part in names(text)]
    if not all(file and colon for file, colon, _ in parts):
        raise ValueError(f"must be FILE:SCALE, not {text!r}")
    return tuple(AdapterSpec(file, scale=_SCALE(scale)) for file, _, scale in parts)


def vectors(text: str) -> tuple[AdapterSpec, ...]:
    """FILE, several of them separated by commas."""
    return tuple(map(AdapterSpec, names(nonempty(text))))


def layer_range(text: str) -> tuple[int, int]:
    """Two numbers of layers, the second not below the first. Raises ValueError."""
    words = text.split()
    if len(words) != 2 or not all(map(str.isdecimal, words)):
        raise ValueError(f"must be two numbers of layers, not {text!r}")
    first, last = map(int, words)
    if not 1 <= first <= last:
        raise ValueError(f"must be two numbers of layers from 1 on, in order, not {text!r}")
    return first, last


def some_names(text: str) -> tuple[str, ...]:
    """Names as `name` has them, at least one, separated by commas, each once."""
    found = names(text)
    return tuple(dict.fromkeys(map(name, found or ("",))))


def servers(text: str) -> tuple[str, ...]:
    """HOST:PORT, separated by commas. A host is a name or an IPv4 number. Raises ValueError."""
    found = names(text)
    for server in found:
        where, _, port = server.rpartition(":")
        try:
            good = 0 < int(port) < 65536 and host(where) and ":" not in where
        except ValueError:
            good = False
        if not good:
            raise ValueError(f"must name servers as HOST:PORT, not {server!r}")
    if not found or len(set(found)) < len(found):
        raise ValueError("must name each server once" if found else "must name a server")
    return found


_SCALE = number(-100, 100)


def nth(kind: str) -> Callable[[str], tuple[str, ...]]:
    """Reads a number as a device of that kind: for "cuda", 1 becomes ("cuda:1",)."""

    def read(text: str) -> tuple[str, ...]:
        return (f"{kind}:{integer(0, 255)(text)}",)

    return read


def shares(text: str) -> tuple[float, ...]:
    """Numbers, separated by commas or slashes."""
    return tuple(number(0, 1e6)(part) for part in text.replace("/", ",").split(","))


def parent(text: str) -> str:
    """process, stdin, or off (also as a switch). Raises ValueError."""
    if text.lower() in ("process", "stdin"):
        return text.lower()
    try:
        return "process" if switch(text) else "off"
    except ValueError:
        raise ValueError(f"must be process, stdin or off, not {text!r}") from None


def repository(text: str) -> str:
    """ORGANIZATION/REPOSITORY of the Hub, and maybe an encoding behind a colon. Raises
    ValueError."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?(:[\w-]+)?", text):
        raise ValueError("must be ORGANIZATION/REPOSITORY or ORGANIZATION/REPOSITORY:QUANT")
    return text


def speculation(text: str) -> str:
    """llama-server's words for who guesses tokens, separated by commas, as `--draft` has them.
    Raises ValueError."""
    ours = {"none": "none", "draft-simple": "model", "draft-eagle3": "model"}
    ours |= {"draft-dflash": "model", "draft-mtp": "mtp"}
    words = names(text.lower())
    kinds = {"ngram" if word.startswith("ngram-") else ours.get(word) for word in words}
    kinds -= {"none"} if len(kinds) > 1 else set()
    if not kinds or None in kinds or {"model", "mtp"} <= kinds:
        raise ValueError(
            "must be none, ngram-mod or another ngram-..., draft-simple, draft-eagle3, "
            f"draft-dflash or draft-mtp, or one of these four beside an ngram, not {text!r}"
        )
    return "both" if len(kinds) > 1 else str(kinds.pop())


def samplers(text: str) -> tuple[str, ...]:
    """Names of samplers in their order, separated by semicolons; or a letter for each of them.
    Raises ValueError."""
    known = {name.replace("_", ""): name for name in SAMPLERS.values()}
    known |= {"temp": "temperature", "nucleus": "top_p", "typ": "typ_p", "typicalp": "typ_p"}
    parts = list(text) if set(text) <= SAMPLERS.keys() else re.split("[;,]", text)
    words = [re.sub("[-_ ]", "", SAMPLERS.get(part, part)).lower() for part in parts]
    wrong = next((word for word in words if word not in known), None)
    if not text or wrong is not None:
        said = wrong if wrong is not None else text
        raise ValueError(f"must name samplers, {';'.join(SAMPLERS.values())}, not {said!r}")
    found = dict.fromkeys(known[word] for word in words)
    first = [name for name in found if name in SAMPLERS_IN_FRONT]
    if list(found)[: len(first)] != first:
        raise ValueError(f"must have {' and '.join(SAMPLERS_IN_FRONT)} in front of the others")
    return tuple(found)


def bare(host: str) -> str:
    """A host without the brackets that an address needs around a number of IPv6."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") and ":" in host else host


def bare_host(text: str) -> str:
    """Any text that is not empty, without the brackets of `[::1]`."""
    return bare(nonempty(text))


# What one address answers for too: both were bound twice.
_COVERED = {"localhost": ("127.0.0.1", "::1"), "0.0.0.0": ("127.0.0.1",), "::": ("::1",)}  # noqa: S104


# In front of the path of a socket that is a file.
UNIX = "unix:"


def hosts(text: str) -> str:
    """Such texts, separated by commas, each once; `unix:PATH`, also llama-server's PATH.sock, with
    the whole path. Raises ValueError."""
    found = names(nonempty(text))
    if UNIX in found:
        raise ValueError("must name a path behind unix:, such as unix:/run/worker.sock")
    if not found:
        raise ValueError("must name an address")
    each = dict.fromkeys(map(_listening_address, found))
    for wide, covered in _COVERED.items():
        if wide in map(str.lower, each):
            each = {one: None for one in each if one not in covered}
    return ",".join(each)


def _listening_address(text: str) -> str:
    if text.startswith(UNIX) or text.endswith(".sock"):
        return f"{UNIX}{Path(text.removeprefix(UNIX)).absolute()}"
    return bare_host(text)


def file_mode(text: str) -> int:
    """Permissions in octal. Raises ValueError."""
    if not re.fullmatch("0?[0-7]{3}", text):
        raise ValueError("must be three octal digits, such as 660")
    return int(text, 8)


def file_or_none(text: str) -> str | None:
    """The name of a file; empty: there is none."""
    return text or None


def host_names(text: str) -> tuple[str, ...]:
    """Names of hosts, separated by commas: `*.example.com` is all below it, `*` any. Raises
    ValueError."""
    found = tuple(dict.fromkeys(name.removesuffix(".") for name in names(text.lower())))
    if not found or not all(name == ANY_HOST or _HOST_NAME.fullmatch(name) for name in found):
        raise ValueError("must be names without a port, such as llm.example.com or *.example.com")
    return found


def host(text: str) -> str:
    """A host's name or number; around one of IPv6 there may be brackets, as an address has it.
    Raises ValueError."""
    text = bare_host(text)
    if not text or not text.isascii() or not all(c.isalnum() or c in ".-_:" for c in text):
        raise ValueError("must be the name or the number of a host")
    return text


def sources(text: str) -> tuple[tuple[str, int], ...]:
    """HOST or HOST:PORT, separated by commas, as (host, port); 0 is the scheme's own port. Raises
    ValueError."""
    found: list[tuple[str, int]] = []
    for each in names(nonempty(text)):
        try:
            parts = urlsplit(f"//{each}")
            found.append((host(parts.hostname or ""), parts.port or 0))
        except ValueError:
            parts = urlsplit("")
        if parts.netloc != each or "@" in each:
            raise ValueError(f"must name hosts as HOST or HOST:PORT, not {each!r}")
    if not found:
        raise ValueError("must name a host")
    return tuple(found)


def address(text: str) -> str:
    """An http:// or https:// address without a password in it."""
    _split(text)
    return text


def origins(text: str) -> tuple[str, ...]:
    """Origins as browsers send them, separated by commas: a scheme, a host, and a port where it is
    not the scheme's own; `*` is any, `localhost` those of this machine. Raises ValueError."""
    found: list[str] = []
    for origin in names(text.lower()):
        if origin in (ANY_ORIGIN, LOCAL_ORIGINS):
            found.append(origin)
            continue
        scheme, _, where = origin.removesuffix("/").partition("://")
        where = where.removesuffix({"http": ":80", "https": ":443"}.get(scheme, "://"))
        if not _SCHEME.fullmatch(scheme) or not _WHERE.fullmatch(where):
            raise ValueError("must name origins, such as https://chat.example or http://host:3000")
        found.append(f"{scheme}://{where}")
    if not found:
        raise ValueError("must name an origin")
    return tuple(found)


def prefix(text: str) -> str:
    """The beginning of a path, /a/b, without a slash at its end. Raises ValueError."""
    path = text.rstrip("/")
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", path):
        raise ValueError("must be the beginning of a path, such as /llm")
    return path


def heartbeat_base(text: str) -> str:
    """A manager's own address; the path of heartbeats is added to it."""
    parts = _split(text)
    return parts._replace(path=parts.path.rstrip("/") + HEARTBEAT_PATH).geturl()


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        # Fails where looking the host up would fail: a part of the name is empty or too long.
        (parts.hostname or "").encode("idna")
    except ValueError:
        good, parts = False, urlsplit("")
    if not good or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be an http:// or https:// address")
    if parts.username is not None:
        raise ValueError("must not hold a user name or a password")
    return parts


def text_file(text: str) -> str:
    """The text in the file of that name, which may be a pipe."""
    return text_in(text, _MAX_TEXT_FILE)


def text_in(path: str, most: int) -> str:
    """The text in the file of that name, which may be a pipe, of at most so many bytes. Raises
    ValueError."""
    try:
        with Path(path).open("rb") as file:
            held = file.read(most + 1)
        if len(held) > most:
            raise ValueError(f"must hold at most {most} bytes")
        return held.decode()
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("is not a text file") from None


def json_object(text: str) -> dict[str, Any]:
    """Raises ValueError."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        raise ValueError('must be a JSON object, such as \'{"type": "object"}\'') from None


def json_file(text: str) -> dict[str, Any]:
    """The JSON object in the file of that name."""
    return json_object(text_file(text))
