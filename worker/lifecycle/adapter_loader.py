"""Adapters that are loaded and unloaded while the worker serves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from worker import log
from worker.engine.thread import EngineThread
from worker.errors import (
    BackendError,
    ModelFileError,
    NotFoundError,
    RequestError,
    UnavailableError,
)
from worker.lifecycle.adapters import ServedAdapters, file_digest
from worker.lifecycle.threads import in_thread
from worker.llama.adapters import digests_in
from worker.llama.backend import LlamaBackend
from worker.machine import human_bytes
from worker.memory.companions import adapters_bytes, room_bytes
from worker.model.adapter import AdapterConfig, load_adapter
from worker.model.config import ModelConfig
from worker.settings import Settings

# Seconds between two looks whether an unloaded adapter is still needed.
_LOOK_S = 0.05


class AdapterLoader:
    """Loads from the folders that the settings name, into the memory that the plan has for it.

    For the event loop's thread. Files are read aside; native code loads and frees them between two
    steps.
    """

    def __init__(
        self,
        settings: Settings,
        config: ModelConfig,
        served: ServedAdapters,
        engine: EngineThread,
        backend: Callable[[], LlamaBackend],
    ) -> None:
        """backend: the one that is in memory"""
        self._settings = settings
        self._config = config
        self._served = served
        self._engine = engine
        self._backend = backend
        self._most = adapters_bytes(each.config for each in served.all)
        self._most += room_bytes(settings)
        self._held = {each.digest: each.config for each in served.all}
        self._changing = asyncio.Lock()
        self._leaving: asyncio.Task[None] | None = None

    async def load(self, name: str, path: str) -> None:
        """Serve the adapter in a file, which `path` names in one of the folders, as `name`.

        Raises NotFoundError, RequestError; UnavailableError where the worker stops.
        """
        self._check_open()
        async with self._changing:
            self._served.check_new(name)
            try:
                await self._load(name, path)
            except (ModelFileError, BackendError) as error:
                kind = NotFoundError if error.code == "NOT_FOUND" else RequestError
                raise kind(
                    error.message, param="lora_path", hint=error.hint, code=error.code
                ) from None
        log.get("adapters").info("loaded", name=name, path=path)

    async def _load(self, name: str, path: str) -> None:
        file = await in_thread("adapter", partial(self._find, path))
        config = await in_thread("adapter", partial(load_adapter, file, self._config.path))
        digest = await in_thread("adapter", partial(file_digest, config))
        self._served.check_new(name, digest)
        await self._free_unused()
        if digest not in self._held:
            self._check_room(config)
            load = partial(self._backend().load_adapter, digest, config.files[0])
            await self._engine.between_steps(load)
            self._held[digest] = config
        self._served.add(name, config, digest)

    def _check_room(self, config: AdapterConfig) -> None:
        held = adapters_bytes(self._held.values())
        needed = adapters_bytes([config])
        if needed > self._most - held:
            room = human_bytes(max(0, self._most - held))
            raise RequestError(
                f"{config.name} needs {human_bytes(needed)}, and {room} are left for adapters.",
                param="lora_path",
                hint="Unload another one, or start with a larger --lora-memory.",
                code="no_room",
            )

    async def unload(self, name: str) -> None:
        """Serve it no longer. Requests that were accepted keep it until they end; then its memory
        is free. Raises NotFoundError; UnavailableError where the worker stops."""
        self._check_open()
        async with self._changing:
            self._served.remove(name)
            log.get("adapters").info("unloaded", name=name)
            await self._free_unused()
        if self._leaving is None or self._leaving.done():
            self._leaving = asyncio.create_task(self._free_later())

    async def settle(self) -> None:
        """Hold none but those that are served. Raises UnavailableError where the worker stops."""
        async with self._changing:
            await self._free_unused()

    def _check_open(self) -> None:
        if not self._settings.lora_dir:
            raise NotFoundError(
                "This worker loads no adapters while it serves.",
                hint="Start it with --lora-dir DIR.",
            )

    def _find(self, path: str) -> Path:
        """The file in one of the folders. No path, and no link, leads out of them."""
        for folder in map(Path, self._settings.lora_dir):
            root = folder.resolve()
            try:
                file = (root / path).resolve()
                if file.is_relative_to(root) and file.is_file():
                    return file
            except (OSError, ValueError):
                continue
        raise NotFoundError(
            f"There is no file {path[:200]!r} in the folders of --lora-dir.", param="lora_path"
        )

    def _unused_adapters(self) -> dict[bytes, AdapterConfig]:
        needed = {each.digest for each in self._served.all}
        needed.update(*map(digests_in, self._engine.keys))
        return {digest: config for digest, config in self._held.items() if digest not in needed}

    async def _free_unused(self) -> None:
        for digest in self._unused_adapters():
            await self._engine.between_steps(partial(self._backend().free_adapter, digest))
            del self._held[digest]

    async def _free_later(self) -> None:
        """Until all are served that are held, or the worker stops."""
        with contextlib.suppress(UnavailableError):
            while len(self._held) > len(self._served.all):
                await asyncio.sleep(_LOOK_S)
                async with self._changing:
                    await self._free_unused()
