"""libmtmd, by llama-cpp-python's bindings; their types are stricter than their functions."""

from __future__ import annotations

from typing import Any

from worker.llama.library import bare_package  # which sets what the first library reads

with bare_package("llama_cpp"):
    import llama_cpp.mtmd_cpp as bound

mtmd: Any = bound
