"""Whether the bindings fit the headers of another llama.cpp, by a C++ compiler's own view.

A generated program names each function, struct field and number that the bindings or the worker
declare; the compiler says what these are, once by the headers that the bindings are made for and
once by the others.
"""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.install.commands import ROOT
from scripts.install.talk import InstallError

# What a program for the headers includes, where it is there.
FOLDERS = ("include", "ggml/include", "tools/mtmd")
HEADERS = ("llama.h", "ggml-cpu.h", "ggml-backend.h", "ggml-rpc.h", "mtmd.h", "mtmd-helper.h")
PROGRAM = """#include <cstddef>
#include <cstdio>
#include <typeinfo>
template <class T> long long number(T value) { return (long long) value; }
"""
# Of formats of kept states, whose files name the build; and of RPC.
VERSIONS = {"LLAMA_SESSION_VERSION", "LLAMA_STATE_SEQ_VERSION", "RPC_PROTO_MAJOR_VERSION"}
LINE = {
    "function": 'std::printf("{item}\\t%s\\n", typeid(decltype(&::{name})).name());',
    "struct": 'std::printf("{item}\\t%zu\\n", sizeof(struct {name}));',
    "field": (
        'std::printf("{item}\\t%zu %zu %s\\n", offsetof(struct {name}, {field}), '
        "sizeof(((struct {name} *) 0)->{field}), "
        "typeid(decltype(((struct {name} *) 0)->{field})).name());"
    ),
    "number": 'std::printf("{item}\\t%lld\\n", number({name}));',
}


@dataclass(frozen=True)
class Fit:
    """How the headers differ from those that the bindings are made for.

    refusals  sentences: what cannot be adapted, and what it is used for
    grown     struct -> (field of the bindings that new bytes come before, or "" for its end, how
              many) where it has fields that the bindings do not know
    """

    refusals: list[str]
    grown: dict[str, list[tuple[str, int]]]


def compare(source: Path, other: Path, *, rpc: bool = False) -> Fit:
    """Hold the bindings in `source`, an unpacked sdist, against the headers of the folder `other`.

    rpc: whether the build speaks with RPC servers, whose protocol is then held too

    Raises InstallError where there are no headers, or no compiler reads them.
    """
    if not (other / "include/llama.h").exists():
        raise InstallError(
            f"{other} is no source of llama.cpp: it has no include/llama.h. Name the folder or the "
            "tarball of a release."
        )
    declared = _declarations(source)
    items = [
        *(("function", name) for name in declared["functions"]),
        *(("struct", name) for name in declared["structs"]),
        *(
            ("field", f"{name}.{field}")
            for name, fields in declared["structs"].items()
            for field, *_ in fields
        ),
        *(
            ("number", name)
            for name in declared["values"]
            if name not in VERSIONS or (rpc and name.startswith("RPC"))
        ),
    ]
    with tempfile.TemporaryDirectory() as folder:
        before = _view(items, source / "vendor/llama.cpp", Path(folder))
        after = _view(list(before), other, Path(folder))
    refusals: list[str] = []
    for kind, name in before:
        if change := _change(kind, name, before[kind, name], after):
            refusals.append(f"{kind} {name} {change} ({_users_of(name)})")
    grown: dict[str, list[tuple[str, int]]] = {}
    for name, fields in declared["structs"].items():
        if ("struct", name) not in after or any(name in text for text in refusals):
            continue
        places = _fillers(name, fields, declared["sizes"][name], after)
        if places is None:
            refusals.append(f"struct {name} has another order of fields ({_users_of(name)})")
        elif places and not any(name in _field_lists(path) for path in _modules(source)):
            refusals.append(f"struct {name} has new fields ({_users_of(name)})")
        elif places:
            grown[name] = places
    return Fit(refusals, grown)


def adapt(source: Path, grown: dict[str, list[tuple[str, int]]]) -> None:
    """Give the structs of the bindings in `source` bytes in the places of fields that they do not
    know, whose values are then the library's defaults."""
    for path in _modules(source):
        lines = path.read_text().splitlines(keepends=True)
        inserted: list[tuple[int, int, str]] = []
        for name, fields in _field_lists(path).items():
            for number, (before, count) in enumerate(grown.get(name, ())):
                filler = f'("_unknown{number}", __import__("ctypes").c_uint8 * {count}), '
                at = next((each for each in fields.elts if _name_of(each) == before), None)
                if at is None:  # behind the last one
                    last, filler = fields.elts[-1], ", " + filler.removesuffix(", ")
                    inserted.append((last.end_lineno or 0, last.end_col_offset or 0, filler))
                else:
                    inserted.append((at.lineno, at.col_offset, filler))
        for line, column, text in sorted(inserted, reverse=True):
            old = lines[line - 1].encode()  # columns of the syntax tree are bytes
            lines[line - 1] = (old[:column] + text.encode() + old[column:]).decode()
        path.write_text("".join(lines))


def _change(kind: str, name: str, was: str, after: dict[tuple[str, str], str]) -> str:
    """What is different about it, "" where nothing is that a struct's layout does not settle."""
    now = after.get((kind, name))
    if now is None:
        is_told = kind == "field" and ("struct", name.partition(".")[0]) not in after
        return "" if is_told else "is gone"
    match kind:
        case "function":
            return "" if now == was else "has another signature"
        case "field":
            return "" if now.split()[1:] == was.split()[1:] else "has another type"
        case "number":
            return "" if now == was else f"is {now}, not {was}"
        case _:  # a struct's size, which its fields settle
            return ""


def _declarations(source: Path) -> dict[str, Any]:
    program = Path(__file__).with_name("declared.py")
    done = subprocess.run(  # noqa: S603  (our own module)
        [sys.executable, program, source, ROOT], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise InstallError(f"What the bindings declare cannot be read: {done.stderr[-500:]}")
    return json.loads(done.stdout)


def _view(items: list[tuple[str, str]], headers: Path, folder: Path) -> dict[tuple[str, str], str]:
    """What the compiler says of each item that it knows."""
    while True:
        source, program = folder / "abi.cpp", folder / "abi"
        first = _write(source, items, headers)
        command = [
            *shlex.split(os.environ.get("CXX", "c++")), "-std=c++17", "-w",
            *(f"-I{headers / place}" for place in FOLDERS), "-o", str(program), str(source),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if not done.returncode:
            break
        errors = re.findall(rf"^{re.escape(str(source))}:(\d+):.*error", done.stderr, re.MULTILINE)
        unknown = {int(line) - first for line in errors}
        known = [item for number, item in enumerate(items) if number not in unknown]
        if len(known) == len(items):
            line = next((each for each in done.stderr.splitlines() if "error" in each), "")
            raise InstallError(
                f"The headers of llama.cpp in {headers} cannot be compiled: the installed library "
                "stays. If files are missing or cut off, name another copy; else see what the "
                f"compiler says: {line}"
            )
        items = known
    printed = subprocess.check_output([program], text=True)  # noqa: S603  (made here)
    values = dict(line.split("\t", 1) for line in printed.splitlines())
    return {(kind, name): values[f"{kind} {name}"] for kind, name in items}


def _write(source: Path, items: list[tuple[str, str]], headers: Path) -> int:
    """Write the program; the number of its first line that is an item's."""
    there = [
        name for name in HEADERS if any((headers / place / name).exists() for place in FOLDERS)
    ]
    begin = PROGRAM + "".join(f'#include "{name}"\n' for name in there) + "int main() {\n"
    source.write_text(begin + "\n".join(_line(*item) for item in items) + "\n}\n")
    return begin.count("\n") + 1


def _line(kind: str, name: str) -> str:
    struct, _, field = name.partition(".")
    return LINE[kind].format(item=f"{kind} {name}", name=struct, field=field)


def _fillers(
    name: str,
    fields: list[tuple[str, int, int]],
    size: int,
    after: dict[tuple[str, str], str],
) -> list[tuple[str, int]] | None:
    """Bytes that are new, and the field that they come before; None where the order is another."""
    shift = 0
    found: list[tuple[str, int]] = []
    for field, offset, _ in fields:
        if not (place := after.get(("field", f"{name}.{field}"))):
            continue  # a union without a name in C
        now = int(place.split()[0])
        if now < offset + shift:
            return None
        if now > offset + shift:
            found.append((field, now - offset - shift))
            shift = now - offset
    total = int(after["struct", name])
    if total < size + shift:
        return None
    if total > size + shift:
        found.append(("", total - size - shift))
    return found


def _modules(source: Path) -> list[Path]:
    return [
        path
        for name in ("llama_cpp.py", "mtmd_cpp.py")
        if (path := source / "llama_cpp" / name).exists()
    ]


def _field_lists(path: Path) -> dict[str, ast.List | ast.Tuple]:
    """Struct -> the list of its fields in a module's syntax tree."""
    return {
        top.name: line.value
        for top in ast.parse(path.read_text()).body
        if isinstance(top, ast.ClassDef)
        for line in top.body
        if isinstance(line, ast.Assign)
        and isinstance(line.value, ast.List | ast.Tuple)
        and line.value.elts
        and any(isinstance(each, ast.Name) and each.id == "_fields_" for each in line.targets)
    }


def _name_of(field: ast.expr) -> object:
    first = field.elts[0] if isinstance(field, ast.Tuple) else None
    return first.value if isinstance(first, ast.Constant) else None


def _users_of(name: str) -> str:
    """Which of the worker's modules name it."""
    _, _, field = name.partition(".")
    word = re.compile(rf"\.{field}\b(?!\()" if field else rf"\b{name}\b")
    found = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "worker/llama").rglob("*.py"))
        if word.search(path.read_text())
    ]
    return f"used by {', '.join(found[:4])}" if found else "declared by llama-cpp-python"
