"""Adapters that come and go, as vLLM's clients ask for them."""

from __future__ import annotations

import msgspec


class NewAdapter(msgspec.Struct):
    """What is to be loaded.

    lora_name   a request's `model` that chooses it
    lora_path   a GGUF file in one of the folders of --lora-dir
    """

    lora_name: str
    lora_path: str


class OldAdapter(msgspec.Struct):
    """What is to be unloaded."""

    lora_name: str
