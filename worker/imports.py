"""Imports without what a library would bring along and nobody here uses."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Generator
from typing import Any


@contextlib.contextmanager
def bare_package(name: str) -> Generator[Any]:
    """Inside, modules of the package can be imported without its `__init__` being run.

    Gives what stands for the package meanwhile, or the package where it is there already.
    That of llama_cpp imports its high-level API, and with it templates, a disk cache, sqlite and
    multiprocessing: 60 ms for what nobody here calls. Whoever imports the package later gets it
    whole, with the modules that are there already.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or name in sys.modules:
        yield sys.modules.get(name)  # where there is none, the import inside says so
        return
    sys.modules[name] = empty = importlib.util.module_from_spec(spec)
    try:
        yield empty
    finally:
        del sys.modules[name]
