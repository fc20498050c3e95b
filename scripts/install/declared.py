"""What the bindings and the worker declare of llama.cpp's interface, read from their own ctypes.

Run as a program of its own, with the bindings' source and the checkout as arguments: it prints
JSON. No library is loaded: whatever looks a function up there gets one that only notes it.
"""

import ctypes
import importlib
import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

NATIVE = ("llama_cpp.llama_cpp", "llama_cpp.mtmd_cpp")
OURS = "worker.llama.signatures"


class _Function:
    def __call__(self, *_: Any) -> int:
        return 1


class _Library:
    """Stands for a shared library: it notes the functions that are looked up in it."""

    def __init__(self) -> None:
        self.functions: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.functions.append(name)
        return _Function()


def main(source: Path, checkout: Path) -> None:
    """Print {"functions": [...], "structs": {name: [[field, offset, size], ...]}, "sizes": {name:
    bytes}, "values": {name: number}}; offsets and sizes are in bytes."""
    library = _Library()

    def same(function: Any) -> Any:
        return function

    def declare(name: str, *_: Any, enabled: bool = True, **__: Any) -> Any:
        if enabled:
            getattr(library, name)
        return same

    def load(*_: Any) -> Any:
        return library

    def declare_in(_: Any) -> Any:
        return declare

    extensions: Any = types.ModuleType("llama_cpp._ctypes_extensions")
    extensions.load_shared_library = load
    extensions.byref = ctypes.byref
    extensions.ctypes_function_for_shared_library = declare_in
    package = types.ModuleType("llama_cpp")
    package.__path__ = [str(source / "llama_cpp")]
    sys.modules |= {"llama_cpp": package, extensions.__name__: extensions}
    sys.path.insert(0, str(checkout))
    modules = [importlib.import_module(name) for name in NATIVE if importlib.util.find_spec(name)]
    structs = {
        name: each
        for module in modules
        for name, each in vars(module).items()
        if isinstance(each, type)
        and issubclass(each, ctypes.Structure)
        and hasattr(each, "_fields_")
    }
    values = {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if name.isupper() and type(value) is int
    }
    ours = importlib.import_module(OURS)
    functions = library.functions + [name for table in ours.TABLES for name, *_ in table]
    structs |= ours.STRUCTS
    values |= ours.VALUES
    fields = {
        name: [
            [field, getattr(each, field).offset, getattr(each, field).size]
            for field, *_ in each._fields_
        ]
        for name, each in structs.items()
    }
    sizes = {name: ctypes.sizeof(each) for name, each in structs.items()}
    told = {"functions": sorted(set(functions)), "structs": fields, "sizes": sizes}
    print(json.dumps(told | {"values": values}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
