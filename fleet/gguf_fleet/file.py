"""fleet.toml: which models a fleet serves, how often, and where its endpoint is.

[fleet]
port = 8000
[models.chat]
file = "qwen3-4b:Q4_K_M"
options = ["--parallel", "8", "--threads", "4"]
replicas = 2
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec

from gguf_fleet.choices import check_choices
from gguf_fleet.errors import UsageError
from gguf_fleet.keys import KeyFile, key_file

_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_CORRECT = "docs/fleet.md shows what a fleet's file holds."
_FIELD = re.compile(r"`([^`]+)`")

T = TypeVar("T", bound=msgspec.Struct)


class FleetEndpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table [fleet].

    host, port    where clients find the fleet
    api_key_file  file with the keys that they send; workers have keys of their own
    gateways      machines that take the port: the head of the cluster, or all of them
    """

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8000
    api_key_file: str | None = None
    gateways: Literal["head", "every node"] = "head"


class FleetReplicas(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Replicas that come and go with the load: `replicas = { min = 1, max = 4 }`.

    min, max     how many there may be; 0: the first request wakes the model
    idle         seconds for which fewer must have been enough before one goes
    first_token  seconds to the first token from which on one more is started
    """

    min: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1
    max: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    idle: Annotated[float, msgspec.Meta(ge=1, le=86400)] = 300.0
    first_token: Annotated[float, msgspec.Meta(gt=0)] = 5.0


class FleetModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table [models.NAME].

    file      GGUF file or a model's name, as `worker serve --model` takes it; it must be on each
              machine. None: the embedded demo model
    options   of `worker serve`, for each replica
    replicas  workers that serve it: their number, or the bounds of it
    gpus      that each of them, and each of its further machines, is given; 0: it has its CPU
    rpc_nodes  further machines on which a replica keeps layers of its model
    affinity  what keeps a conversation on one replica: the head of its prompt, the session that
              the client names, or nothing
    """

    file: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    options: tuple[str, ...] = ()
    replicas: Annotated[int, msgspec.Meta(ge=1, le=1000)] | FleetReplicas = 1
    gpus: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    rpc_nodes: Annotated[int, msgspec.Meta(ge=0, le=15)] = 0
    affinity: Literal["prefix", "session", "none"] = "prefix"


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """All of the file. `keys` are what clients send, or None: everybody may."""

    endpoint: FleetEndpoint
    models: dict[str, FleetModel]
    keys: KeyFile | None = None

    @property
    def wants_gpus(self) -> bool:
        return any(model.gpus for model in self.models.values())

    def __repr__(self) -> str:
        return f"Fleet({self.endpoint!r}, {self.models!r})"


DEMO = Fleet(endpoint=FleetEndpoint(), models={"demo": FleetModel(replicas=2)})


def read_fleet(path: Path | None) -> Fleet:
    """The fleet that the file describes; without a file two workers of the demo model.

    Paths in it are relative to its folder. Raises UsageError: one sentence with the line and the
    field that are wrong.
    """
    if path is None:
        return DEMO
    try:
        text = path.read_text()
        tables = tomllib.loads(text)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.",
            hint="Name a fleet's file, or leave it away for a fleet of the demo model.",
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text in UTF-8.", hint=_CORRECT) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML file: {error}.", hint=_CORRECT) from None
    source = _Source(path, text)
    for name in tables:
        if name not in ("fleet", "models"):
            raise source.wrong(name, f"there is no table [{name}]")
    endpoint = source.read("fleet", tables.get("fleet", {}), FleetEndpoint)
    models: Any = tables.get("models")
    if not isinstance(models, dict) or not models:
        raise source.wrong("models", "no model is named: write [models.NAME]")
    named = cast("dict[str, Any]", models)
    found = {name: _model(source, name, table) for name, table in named.items()}
    return Fleet(endpoint=endpoint, models=found, keys=_keys(source, endpoint))


def _model(source: _Source, name: str, table: Any) -> FleetModel:
    where = f"models.{name}"
    if not _NAME.fullmatch(name):
        raise source.wrong(where, "a model's name is 1 to 64 letters, digits or any of ._:-")
    model = source.read(where, table, FleetModel)
    try:
        check_choices(model.options, has_servers=model.rpc_nodes > 0, has_gpus=model.gpus > 0)
    except UsageError as error:
        raise source.wrong(where, f"options: {error}".rstrip("."), "options") from None
    if isinstance(model.replicas, FleetReplicas) and model.replicas.min > model.replicas.max:
        raise source.wrong(where, "replicas: min is larger than max", "replicas")
    if model.file is None:
        return model
    return msgspec.structs.replace(model, file=_absolute(model.file, source.path.parent))


def _absolute(file: str, folder: Path) -> str:
    """A path as all machines can read it; a model's name stays one."""
    # A Path's own method raises where there is no home folder.
    here = folder / os.path.expanduser(file.removeprefix("file:"))  # noqa: PTH111
    is_path = file.startswith(("/", ".", "~", "file:")) or (
        file.lower().endswith(".gguf") and not file.startswith("hf:") and "::file=" not in file
    )
    return str(here.resolve()) if is_path or here.exists() else file


def _keys(source: _Source, endpoint: FleetEndpoint) -> KeyFile | None:
    if endpoint.host.startswith("unix:"):
        why = "host: a gateway listens on TCP and has no Unix sockets; name an address"
        raise source.wrong("fleet", why, "host")
    if not _HOST.fullmatch(endpoint.host.removeprefix("[").removesuffix("]")):
        raise source.wrong("fleet", "host must be the name or the number of a host", "host")
    if endpoint.api_key_file is None:
        return None
    try:
        return key_file(str(source.path.parent / endpoint.api_key_file))
    except ValueError as error:
        raise source.wrong("fleet", f"api_key_file {error}", "api_key_file") from None


class _Source:
    """The file's text, to say on which line something stands."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._lines = text.splitlines()

    def read(self, table: str, values: Any, shape: type[T]) -> T:
        """The table as `shape`. Raises UsageError."""
        try:
            return msgspec.convert(values, shape)
        except msgspec.ValidationError as error:
            said, _, place = str(error).partition(" - at `$")
            found = _FIELD.search(said) if "unknown field" in said else None
            outer = re.split(r"[.\[`]", place.lstrip("."))[0]
            said = said.removeprefix("Object contains ")
            about = f"{outer}: " if outer else ""
            field = outer or (found[1] if found else "")
            raise self.wrong(table, f"{about}{said[:1].lower()}{said[1:]}", field) from None

    def wrong(self, table: str, what: str, field: str = "") -> UsageError:
        """`what` is wrong in that table, on the line of its field where one is given."""
        line = self._line(table, field)
        where = f"{self.path}, line {line}, " if line else f"{self.path}, "
        return UsageError(f"{where}[{table}]: {what}.")

    def _line(self, table: str, field: str) -> int | None:
        """Where the field stands, else where its table begins, else None."""
        begins, inside = None, False
        for number, line in enumerate(self._lines, 1):
            text = line.strip()
            if text.startswith("["):
                named = text.strip("[] ").replace('"', "").replace("'", "")
                inside = named == table or (begins is None and named.startswith(f"{table}."))
                begins = number if inside else begins
            elif inside and field and re.match(rf"""["']?{re.escape(field)}\b""", text):
                return number
        return begins
