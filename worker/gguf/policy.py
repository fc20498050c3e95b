"""Choices: which odd files are refused although llama.cpp may take them, and limits of reading.

By default all of them are refused. A file that a switch allows goes on to llama.cpp.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Purpose = Literal["generate", "serve", "inspect"]
"""What a model is opened for. `serve` also takes encoders, `inspect` vocabularies too."""

_MiB = 1024 * 1024


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Choices and limits for reading one model file. Sizes are bytes."""

    allow_version_2: bool = False
    """GGUF version 2 has the layout of version 3; only files from 2023 carry it."""
    allow_odd_keys: bool = False
    """Keys with upper-case letters or empty segments (`a..b`)."""
    allow_small_alignment: bool = False
    """`general.alignment` of 1 to 16. llama.cpp ends the process where such a file is mapped."""
    allow_trailing_bytes: bool = False
    """More bytes behind the last tensor than one alignment, for example a second file."""
    allow_missing_quantization_version: bool = False
    """Quantised tensors without `general.quantization_version`."""
    allow_odd_merges: bool = False
    """BPE merges that are not two parts with one space between."""
    allow_unknown_merge_parts: bool = False
    """BPE merges of parts that are no tokens; such a merge never applies."""
    allow_nul_in_tokens: bool = False
    """Token texts with a NUL byte. llama.cpp cuts them there."""
    allow_missing_byte_tokens: bool = False
    """A vocabulary without some of `<0x00>` to `<0xFF>`, of a tokenizer that needs them: a text
    with such a byte makes llama.cpp abort."""
    allow_excess_scores: bool = False
    """More scores or token types than tokens."""
    allow_vocab_size_mismatch: bool = False
    """A `vocab_size` key that differs from the number of tokens. The number of tokens counts."""
    allow_unknown_architecture: bool = False
    """Architectures that the pinned llama.cpp does not list."""
    allow_layer_gaps: bool = False
    """Tensors of a block at or above block_count, or blocks without tensors."""

    max_metadata_bytes: int = 256 * _MiB
    """Header, metadata and tensor table of one file."""
    max_keys: int = 65_536
    max_tensors: int = 65_536
    max_strings: int = 2_000_000
    """Elements of one string array."""
    max_string_bytes: int = 16 * _MiB
    max_elements: int = 64 * _MiB
    """Elements of one array of numbers."""
    max_key_bytes: int = 65_535
    max_alignment: int = 65_536
    max_vocab: int = 1_048_576
    max_token_bytes: int = 65_536
    max_template_bytes: int = 256 * 1024
    max_splits: int = 4_096
