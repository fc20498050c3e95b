"""Writes a draft model that has some of a model's own layers, as they are.

    python -m benchmarks.pruned MODEL.gguf 0-9,20-27 DRAFT.gguf

Nothing is trained. What it guesses is right the more often the more layers it has, and it costs as
much more: so it stands for a drafter that is right as often, and is dear.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf

_BLOCK = re.compile(r"blk\.(\d+)\.(.*)")


def write_pruned(model: Path, layers: Sequence[int], draft: Path) -> None:
    """Write `draft` with these layers of the model, in this order."""
    source = gguf.GGUFReader(model)
    architecture = source.fields["general.architecture"].contents()
    out = gguf.GGUFWriter(draft, architecture)
    for field in source.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        is_count = field.name == f"{architecture}.block_count"
        add_field(out, field, len(layers) if is_count else field.contents())
    places = {str(layer): place for place, layer in enumerate(layers)}
    for tensor in source.tensors:
        name = tensor.name
        if block := _BLOCK.match(name):
            if block[1] not in places:
                continue
            name = f"blk.{places[block[1]]}.{block[2]}"
        out.add_tensor(name, tensor.data, raw_dtype=tensor.tensor_type)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def add_field(out: gguf.GGUFWriter, field: gguf.ReaderField, value: Any) -> None:
    """Write a field of another file, with this value."""
    kind = field.types[0]
    is_array = kind == gguf.GGUFValueType.ARRAY
    out.add_key_value(field.name, value, kind, field.types[-1] if is_array else None)


def numbers(text: str) -> list[int]:
    """'0-2,7' -> [0, 1, 2, 7]."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def main() -> None:
    """Write one."""
    parser = argparse.ArgumentParser(description="A draft model of some of a model's layers.")
    parser.add_argument("model", type=Path)
    parser.add_argument("layers", type=numbers, help="such as 0-9,20-27")
    parser.add_argument("draft", type=Path)
    given = parser.parse_args()
    write_pruned(given.model, given.layers, given.draft)


if __name__ == "__main__":
    main()
