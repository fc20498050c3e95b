"""A module of a package, without what the package itself imports."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Generator


@contextlib.contextmanager
def bare_package(name: str) -> Generator[None]:
    """Inside, modules of the package can be imported without its `__init__` being run.

    That of llama_cpp imports its high-level API, and with it templates, a disk cache, sqlite and
    multiprocessing: 60 ms for what nobody here calls. Whoever imports the package later gets it
    whole, with the module that is there already.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or name in sys.modules:
        yield  # the import inside says what is missing
        return
    sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules[name]
