"""The demo model with tokens for infill, which it was not trained with."""

from __future__ import annotations

import struct
from pathlib import Path

from worker.demo import MODEL_PATH

_ROLES = {"fim_pre": 300, "fim_suf": 301, "fim_mid": 302}
_HEADER = struct.Struct("<4sIQQ")  # magic, version, tensors, keys
_ALIGNMENT = 32


def write_infilling(folder: Path) -> Path:
    """A copy under the demo model's own name; its new keys leave the tensors aligned."""
    data = MODEL_PATH.read_bytes()
    magic, version, num_tensors, num_keys = _HEADER.unpack_from(data)
    keys = b"".join(
        _key(f"tokenizer.ggml.{role}_token_id", 4) + struct.pack("<I", token)
        for role, token in _ROLES.items()
    )
    rest = _key("general.comment", 8) + struct.pack("<Q", 0)
    missing = -(len(keys) + len(rest)) % _ALIGNMENT
    rest = rest[:-8] + struct.pack("<Q", missing) + b"." * missing
    path = folder / MODEL_PATH.name
    head = _HEADER.pack(magic, version, num_tensors, num_keys + len(_ROLES) + 1)
    path.write_bytes(head + keys + rest + data[_HEADER.size :])
    return path


def _key(name: str, kind: int) -> bytes:
    """Name and type of a value, which follows."""
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind)
