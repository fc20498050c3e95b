"""libmtmd, by llama-cpp-python's bindings; their types are stricter than their functions."""

from __future__ import annotations

from typing import Any

from worker.llama.library import bare_package
from worker.llama import library  # its variables are set before the first library is loaded

assert library.native
with bare_package("llama_cpp"):
    import llama_cpp.mtmd_cpp as bound

mtmd: Any = bound
