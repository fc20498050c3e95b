"""The house: who may import whom, and that names lead somewhere."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

TOP = Path(__file__).parent.parent
ROOT = TOP / "worker"

# package -> the packages of ours that it may import
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "account": set(),
    "budget": {"errors"},
    "limits": set(),
    "log": set(),
    "demo": set(),
    "machine": set(),
    "child": set(),
    "values": set(),
    "batches": {"files", "errors"},
    "keys": {"values", "account", "limits", "errors"},
    "files": {"machine", "errors"},
    "settings": {"keys", "values", "limits"},
    "database": {"batches", "files", "errors", "log"},
    "gguf": {"errors"},
    "model": {"gguf", "errors"},
    "memory": {"model", "gguf", "settings", "limits", "files", "machine", "errors"},
    "hub": {"model", "gguf", "settings", "files", "machine", "errors"},
    "audit": {"hub", "model", "gguf", "errors"},
    "isolation": {"model", "gguf", "settings", "files", "errors", "log"},
    "cache": {"files", "errors", "log"},
    "engine": {"grammar", "cache", "limits", "account", "errors", "log"},
    "chat": {"grammar", "limits", "errors"},
    "grammar": {"limits", "errors"},
    "llama": {
        "grammar", "engine", "cache", "memory", "model", "gguf", "files", "machine", "limits",
        "isolation", "budget", "child", "errors", "log",
    },
    "lifecycle": {
        "audit", "llama", "engine", "cache", "chat", "grammar", "memory", "model", "settings",
        "machine", "child", "files", "limits", "errors", "log",
    },
    "http": {
        "lifecycle", "settings", "values", "keys", "limits", "machine", "account", "errors",
        "log",
    },
    "requests": {"http", "engine", "lifecycle", "account", "errors", "log"},
    "api": {
        "batches", "database", "budget", "requests", "http", "lifecycle", "chat", "grammar",
        "engine", "model", "settings", "values", "keys", "limits", "machine", "account", "errors",
        "log",
    },
    "service": {
        "database", "api", "requests", "http", "lifecycle", "chat", "grammar", "engine", "model",
        "settings", "values", "keys", "limits", "machine", "account", "errors", "log",
    },
    "bench": {
        "lifecycle", "llama", "engine", "memory", "model", "gguf", "settings", "values", "files",
        "machine", "child", "errors", "log",
    },
    "cli": {
        "service", "api", "requests", "bench", "batches", "audit", "chat", "isolation", "lifecycle",
        "llama", "engine", "hub", "memory", "model", "gguf", "settings", "values", "files",
        "machine", "errors", "log", "demo",
    },
}  # fmt: skip

# foreign module -> the packages that may import it
RESERVED: dict[str, set[str]] = {
    "llama_cpp": {"llama"},
    "ctypes": {"llama"},
    "landlockpy": {"isolation"},
    "PIL": {"llama/media/pictures.py"},
    "llguidance": {"llama"},
    "huggingface_hub": {"hub"},
    "jinja2": {"chat", "bench"},
    "litestar": {"http", "api", "service"},
    "opentelemetry": {"requests/spans.py"},
    "prometheus_client": {"api/info/collector.py"},
    "uvicorn": {"http", "service"},
    "httptools": {"http"},
    "multipart": {"api/batches/upload.py"},
    "sqlite3": {"database"},
    "rich": {"cli"},
    "asyncio": {
        "http", "requests", "api", "service", "lifecycle", "cli",
        "engine/thread.py", "engine/stream.py", "database/database.py",
    },
    "threading": {
        "llama", "lifecycle", "engine/thread.py", "chat/jinja/sandbox.py", "cache/disk.py",
        "cache/folder.py", "child.py", "log.py",
    },
}  # fmt: skip

# Libraries' classes with private parts that we use -> the module that may know those
PRIVATE = {
    HttpToolsProtocol: "http/protocol.py",
}

# Where the model is loaded, computes and comes from.
MODEL_SIDE = tuple(
    f"worker.{name}." for name in ("llama", "lifecycle", "memory", "hub", "audit", "isolation")
)

# Folders that keep the rules of size, names and references.
TIDY = ("worker", "benchmarks", "scripts", "checks")
# Programs of llama.cpp that a text may name.
FOREIGN = frozenset({"convert_hf_to_gguf.py", "convert_lora_to_gguf.py", "gguf_set_metadata.py"})
NAMED = re.compile(r"(?<![\w/.-])(?:[\w-]+/)*\w+\.py\b")

# Past participles, but for those that are the verb itself (read, cut, put).
PARTICIPLE = re.compile(
    r"(?!embed$|(ex|pro|suc)ceed$|feed$|need$|seed$|speed$)[a-z]{2,}ed|begun|bent|born|bought|"
    r"broken|brought|built|caught|chosen|done|drawn|driven|fallen|felt|forgotten|fought|found|"
    r"frozen|given|gone|grown|heard|held|hidden|kept|known|left|lent|lost|made|meant|met|"
    r"overridden|paid|proven|rewritten|said|seen|sent|shown|sold|sought|spent|spoken|stolen|stood|"
    r"sworn|taken|taught|thrown|told|torn|understood|unknown|withdrawn|woken|worn|wound|written"
)
# What may follow a participle without making a noun of it: `take_out`, `last_frames`.
PARTICLE = re.compile("at|away|by|for|from|in|last|of|off|on|out|over|to|up|whole|with")

FILES = sorted(ROOT.rglob("*.py"))


def module_of(path: Path) -> str:
    """The dotted name."""
    return ".".join(path.relative_to(TOP).with_suffix("").parts).removesuffix(".__init__")


def tidy_files() -> list[Path]:
    """All modules of TIDY."""
    found: list[Path] = []
    for name in TIDY:
        path = TOP / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


def name_of(path: Path) -> str:
    """The path from the top, for the names of tests."""
    return path.relative_to(TOP).as_posix()


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All of a file's syntax tree, from the top."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Full dotted names of everything that a file imports, lazily or not."""
    names: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


def public_names_of(path: Path) -> set[str]:
    """Classes and named types that a module defines for others."""
    found: set[str] = set()
    top = nodes_of(path)[0]
    assert isinstance(top, ast.Module)
    for node in top.body:
        match node:
            case ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) if not name.isupper():
                found.add(name)
            case _:
                pass
    return {name for name in found if name[0].isupper()}


def prose_of(path: Path) -> Iterator[str]:
    """The comments and docstrings of a module, or the whole of another text."""
    text = path.read_text()
    if path.suffix != ".py":
        yield text
        return
    for node in nodes_of(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def names_in(path: Path) -> set[str]:
    """Names of attributes that a file asks for, and of functions that it defines."""
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found


def test_imports_point_down() -> None:
    """A file imports its own package and those below; foreign modules stay in their room."""
    wrong: list[str] = []
    for path in FILES:
        inside = path.relative_to(ROOT)
        package = inside.parts[0].removesuffix(".py")
        for name in imports_of(path):
            head, _, rest = name.partition(".")
            if head == "worker" and rest and package not in ("__init__", "__main__"):
                target = rest.split(".")[0]
                if target not in {"__version__", package, *ALLOWED[package]}:
                    wrong.append(f"{inside} imports {name}")
            if head in RESERVED and not {package, inside.as_posix()} & RESERVED[head]:
                wrong.append(f"{inside} imports {head}")
    assert wrong == []


def test_an_api_knows_no_other() -> None:
    """An API's folder imports the two shared rooms and what lies below; a shared room no API."""
    shared = {"intake", "answer", "described"}
    apis = children_of(ROOT / "api")
    assert {name: found - shared for name, found in apis.items() if found - shared} == {}


@pytest.mark.parametrize("room", ["answer", "intake", "intake/chat"])
def test_front_pages_are_whole(room: str) -> None:
    """The docstring of a room that all APIs share names each of its modules."""
    folder = ROOT / "api" / room
    page = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert modules - set(re.findall(r"\w+", page)) == set()


def test_a_chat_reaches_no_model() -> None:
    """What a chat's route imports, and so on, has no part of what loads, computes or downloads."""
    modules = {module_of(path): path for path in FILES}
    reached, found = set[str](), ["worker.api.openai.routes"]
    while found:
        name = found.pop()
        if name in modules and name not in reached:
            reached.add(name)
            for each in imports_of(modules[name]):
                found += [each, each.rpartition(".")[0]]
    parts = {name for name in reached if name.startswith(MODEL_SIDE)}
    assert parts == {"worker.lifecycle.state"}  # of the process


@pytest.mark.parametrize(("known", "room"), PRIVATE.items(), ids=PRIVATE.values())
def test_private_parts_have_one_room(known: type, room: str) -> None:
    """A new release of Litestar or uvicorn may change what one module of ours knows."""
    library = known.__module__.partition(".")[0]
    private = {name for name in vars(known) if re.match(r"_[a-z]", name)}
    users = {
        path.relative_to(ROOT).as_posix()
        for path in FILES
        if any(name.startswith(f"{library}.") and "._" in name for name in imports_of(path))
        or names_in(path) & private
    }
    assert users == {room}


def test_the_map_is_complete() -> None:
    """Every package has its rule, and no rule is for a package that is gone."""
    packages = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in FILES}
    assert packages - {"__init__", "__main__"} == set(ALLOWED)


def children_of(folder: Path) -> dict[str, set[str]]:
    """Each module and package of a folder, with those of the same folder that it imports."""
    graph: dict[str, set[str]] = {}
    here = (folder.relative_to(TOP)).parts
    for path in sorted(folder.rglob("*.py")):
        child = path.relative_to(folder).parts[0].removesuffix(".py")
        imported = graph.setdefault(child, set())
        for name in imports_of(path):
            parts = tuple(name.split("."))
            if parts[: len(here)] == here and len(parts) > len(here):
                imported.add(parts[len(here)])
    return {child: (found & graph.keys()) - {child} for child, found in graph.items()}


def test_no_circle() -> None:
    """What stands side by side has an order: nothing imports what imports it."""
    for folder in {path.parent for path in FILES if "__" not in path.parent.name}:
        TopologicalSorter(children_of(folder)).prepare()


def test_public_names_are_unique() -> None:
    """A class or a named type has a name that no other module uses."""
    homes: dict[str, list[str]] = {}
    for path in tidy_files():
        if path.is_relative_to(TOP / "checks"):
            continue  # a harness names its own
        for name in public_names_of(path):
            homes.setdefault(name, []).append(name_of(path))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def is_participle(name: str) -> bool:
    """Whether a function's name says only what was done, such as `told` or `take_out`."""
    first, *rest = name.strip("_").split("_")
    return bool(PARTICIPLE.fullmatch(first)) and all(map(PARTICLE.fullmatch, rest))


@pytest.mark.parametrize("name", ["told", "_kept", "taken_out", "merged"])
def test_participles_are_seen(name: str) -> None:
    """The rule below sees regular and irregular ones, private ones and those with a particle."""
    assert is_participle(name)


@pytest.mark.parametrize("name", ["feed", "read", "held_tokens", "take_out", "is_told"])
def test_other_names_are_none(name: str) -> None:
    """A verb, a noun with a participle before it and a question are no bare participles."""
    assert not is_participle(name)


def test_functions_are_verbs_or_nouns() -> None:
    """A function is named by what it does or gives; only a property may be a bare participle."""
    wrong: list[str] = []
    for path in (
        *FILES,
        *(TOP / "scripts").rglob("*.py"),
        *(TOP / "fleet/gguf_fleet").rglob("*.py"),
    ):
        for node in nodes_of(path):
            bodies = node.body if isinstance(node, ast.Module | ast.ClassDef) else ()
            for each in bodies:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    is_property = any("property" in ast.unparse(d) for d in each.decorator_list)
                    if is_participle(each.name) and not is_property:
                        wrong.append(f"{name_of(path)} {each.name}")
    assert wrong == []


def test_modules_that_a_text_names_exist() -> None:
    """Each `name.py` or `folder/name.py` in a docstring or comment is a file of this tree."""
    places = ("worker", "tests", "checks", "benchmarks", "scripts", "examples")
    files = [name_of(file) for place in places for file in (TOP / place).rglob("*.py")]
    known = {
        "/".join(parts[i:]) for parts in (f.split("/") for f in files) for i in range(len(parts))
    }
    wrong = [
        f"{name_of(path)} names {name}"
        for path in (*tidy_files(), ROOT / "engine" / "DESIGN.md")
        if NAMED.search(path.read_text())  # most name none, and need not be read closely
        for prose in prose_of(path)
        for name in set(NAMED.findall(prose)) - FOREIGN - known
    ]
    assert wrong == []
