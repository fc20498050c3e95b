"""The table by which T5's tokenizer writes one text for another (SentencePiece's charsmap).

Native code walks it for each text, and throws an exception through its C interface where a walk
leaves the table. So each place that a walk can reach is looked at here.

The layout is that of an XOR-compressed double array (Kanda 2018), as in llama.cpp's
`llm_tokenizer_ugm_session::normalize_prefix`:

    UINT32 size     bytes of the table
    UINT32[] node   bits 0 to 7 the byte that leads here, 8 whether a text ends here, 9 whether
                    the base is shifted by 8, 10 to 30 the base; or a place among the texts
    texts           each ends with NUL

From the node at `i` a walk goes on at `i ^ base(i) ^ byte`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 4 << 20  # T5's has 0.2 MB
MAX_DEPTH = 1024  # bytes of a text that is replaced; T5's have 24 at most

_Nodes = NDArray[np.int64]


def charsmap_problem(raw: bytes) -> str:
    """What is wrong with a table, as the end of "it must be ..."; empty: nothing."""
    if len(raw) > MAX_BYTES:
        return f"at most {MAX_BYTES} bytes long"
    size = int.from_bytes(raw[:4], "little")
    if len(raw) < 4 or size + 4 >= len(raw):
        return f"longer than its table of {size} bytes"
    nodes = np.frombuffer(raw, "<u4", size // 4, 4).astype(np.int64)
    if not len(nodes):
        return ""
    return _walk_problem(nodes, raw[4 + size :].rfind(b"\0"))


def _walk_problem(nodes: _Nodes, last_end: int) -> str:
    """Follow all texts at once, byte by byte. last_end: place of the last NUL among the texts."""
    count = len(nodes)
    places = np.arange(count)
    labels = nodes & (1 << 31 | 0xFF)
    onward = places ^ (nodes >> 10 << ((nodes & 1 << 9) >> 6))
    inner = np.flatnonzero((labels > 0) & (labels < 256))
    # The nodes by the place that a walk comes from: those of one place stand side by side.
    inner = inner[np.argsort(inner ^ labels[inner], kind="stable")]
    origins = inner ^ labels[inner]
    seen = np.zeros(count, np.bool_)
    front = onward[:1]
    for _ in range(MAX_DEPTH):
        if (front | 0xFF).max(initial=0) >= count:
            return "a table that no text leads out of"
        front = np.unique(front[~seen[front]])
        if not len(front):
            return ""
        seen[front] = True
        begins = np.searchsorted(origins, front)
        lengths = np.searchsorted(origins, front, "right") - begins
        before: _Nodes = np.repeat(np.cumsum(lengths) - lengths, lengths)
        steps = np.arange(len(before)) - before
        reached = inner[np.repeat(begins, lengths) + steps]
        front = onward[reached]
        ends = front[(nodes[reached] & 1 << 8) > 0]
        if ends.max(initial=0) >= count:
            return "a table that no text leads out of"
        if (nodes[ends] & (1 << 31) - 1).max(initial=-1) > last_end:
            return "a table whose replacements end"
    return f"a table of texts of at most {MAX_DEPTH} bytes"
