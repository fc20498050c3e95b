"""Imports without what a library would bring along and nobody here uses."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from collections.abc import Generator
from typing import Any, cast

_one_at_a_time = threading.RLock()


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


@contextlib.contextmanager
def without(*names: str) -> Generator[None]:
    """Inside, an import of these modules fails as if they were not installed.

    A library that would use them if it could then does without. What was imported before is there
    again afterwards. One thread at a time: another would take what is missing for what was there.
    """
    with _one_at_a_time:
        before = {name: sys.modules[name] for name in names if name in sys.modules}
        for name in names:
            sys.modules[name] = cast("Any", None)
        try:
            yield
        finally:
            for name in names:
                del sys.modules[name]
            sys.modules.update(before)
