"""llama.cpp's calls for hidden states, which are not a part of its public interface.

They are exported under C++ names, which another compiler spells in another way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from worker.llama import library
from worker.llama.library import bare_package

calls: Any = None
missing: str | None = None
try:
    with bare_package():
        import llama_cpp.llama_cpp_ext as calls
except (ImportError, AttributeError) as error:  # AttributeError: the library has no such symbol
    missing = str(error)


def why_missing() -> str | None:
    """Why this build gives no hidden states, as a part of a sentence; None: it does."""
    return None if missing is None else f"this build of llama.cpp gives no hidden states: {missing}"


def give_hidden(context: Any, *, outputs_only: bool) -> None:
    """Have the context keep the hidden states of all rows, or of those with outputs."""
    calls.llama_set_embeddings_nextn(context, True, outputs_only)


def hidden_rows(context: Any, rows: int, width: int) -> np.ndarray:
    """Hidden states of the last batch's first rows, float32 [rows, width], until the next one.

    A context that keeps those of outputs only has these.
    """
    return library.floats(calls.llama_get_embeddings_nextn(context), rows * width).reshape(
        rows, width
    )
