"""Variants of the CPU's backend: a build for many CPUs has one for each generation of them.

Such a build holds no backend of its own. Each process loads one variant by its path, before it uses
any device: ggml's own search, without a path, would take one from the current folder too. A build
for one CPU has no variants, and nothing is loaded.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from worker import log
from worker.errors import BackendError

# Names the variant to take, for child processes and for whoever wants a lesser one.
TOLD = "GGUF_WORKER_VARIANT"
_PREFIX, _SUFFIX = "libggml-cpu-", ".so"  # macOS too: CMake names what is loaded by path so


class Variant(msgspec.Struct, frozen=True):
    """One variant. `score` is its own word for how well it suits this CPU; 0: it cannot run."""

    name: str
    path: Path
    score: int


_loaded: list[Variant] = []  # one at most: a second one would be a second device


def variant_names(folder: Path) -> tuple[str, ...]:
    """Names of all variants in llama.cpp's folder."""
    names = (path.name for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"))
    return tuple(sorted(name[len(_PREFIX) : -len(_SUFFIX)] for name in names))


@functools.cache
def rank_variants(folder: Path) -> tuple[Variant, ...]:
    """The variants in llama.cpp's folder that this CPU can run, the best first."""
    paths = {name: folder / f"{_PREFIX}{name}{_SUFFIX}" for name in variant_names(folder)}
    every = [Variant(name, path, _score(path)) for name, path in paths.items()]
    able = [variant for variant in every if variant.score > 0]
    return tuple(sorted(able, key=lambda variant: -variant.score))


def choose(folder: Path, is_sound: Callable[[str], bool]) -> Variant | None:
    """The variant to load: the one that TOLD names, else the best that is sound.

    is_sound: says of a variant's name whether it computes rightly on this CPU

    None in a build that has no variants. Raises BackendError where none is left.
    """
    names, able = variant_names(folder), rank_variants(folder)
    told = os.environ.get(TOLD)
    if told:
        if chosen := next((variant for variant in able if variant.name == told), None):
            return chosen
        have = ", ".join(variant.name for variant in able) or "none"
        raise BackendError(
            f"{TOLD} names {told}; variants of this build that run here: {have}.",
            hint=f"Name another one, or unset {TOLD}.",
        )
    if not names:
        return None
    for variant in able:
        if is_sound(variant.name):
            return variant
    raise BackendError(
        "None of this build's variants for CPUs runs on this one.",
        hint="Build llama.cpp here: `make install` without GGUF_WORKER_WHEELS.",
    )


def load(lib: ctypes.CDLL, variant: Variant | None) -> None:
    """Give ggml this variant as its CPU backend, once; nothing where a build has none.

    lib: the library with ggml's functions

    Raises BackendError where it cannot be loaded, or another one has been.
    """
    if variant is None or current() == variant:
        return
    if before := current():
        raise BackendError(f"This process computes with the variant {before.name} already.")
    if not lib.ggml_backend_load(os.fsencode(variant.path)):
        raise BackendError(
            f"llama.cpp's library for this CPU cannot be loaded: {variant.path}.",
            hint="Install llama-cpp-python again.",
        )
    _loaded.append(variant)


def current() -> Variant | None:
    """The variant that this process computes with; None before it is loaded, or without any."""
    return _loaded[0] if _loaded else None


def _score(path: Path) -> int:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        log.get("llama").warning("a variant for CPUs cannot be opened", reason=str(error))
        return 0
    score = int(library.ggml_backend_score())
    # Mapped in vain it would stay in memory.
    ctypes.CDLL(None).dlclose(ctypes.c_void_p(library._handle))
    return score
