"""A level's file: the one that was given, or one made from the source and kept."""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path

import msgspec

from worker.bench.cache import key_of, remove
from worker.bench.job import QuantiseAnswer, QuantiseJob
from worker.bench.plan import Level, Plan
from worker.bench.stages import Events, StageFailed, Stages
from worker.errors import ModelFileError
from worker.model.config import ModelConfig, load_config


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A level's file, with its content's hash."""

    path: str
    sha256: str
    config: ModelConfig


def open_file(stages: Stages, level: Level, path: Path) -> Events[File]:
    """A file that exists, read and hashed. Raises ModelFileError, StageFailed."""
    config = load_config(path)
    sha256 = yield from stages.hash(level.name, [Path(file.path) for file in config.files])
    return File(path=str(path), sha256=sha256, config=config)


def make_file(
    stages: Stages, level: Level, source: File, plan: Plan, bindings: str, keep: frozenset[Path]
) -> Events[File]:
    """The source in the level's encoding. Raises StageFailed, ModelFileError.

    bindings  version of what quantises it
    keep      entries of the cache that must not give way to it
    """
    assert level.quant is not None
    cache = stages.cache
    maker = bindings
    if plan.imatrix is not None:
        maker += "-" + (yield from stages.hash(level.name, [Path(plan.imatrix)]))[:16]
    target = cache.quant(source.sha256, maker, Path(source.path), level.quant)
    key = key_of("made", source.sha256, maker, target.name)
    file = yield from _kept(stages, level, target, key)
    if file is None:
        cache.make_room(source.config.n_params * 9 // 8, keep)  # no level takes more than 9 bits
        if not target.parent.is_dir():
            remove(target.parent)
            target.parent.mkdir(parents=True)
        job = QuantiseJob(
            source=source.path, target=str(target), type_name=level.quant,
            imatrix=plan.imatrix, threads=plan.threads,
        )  # fmt: skip
        yield from stages.run(level.name, "quantise", job, QuantiseAnswer, None)
        file = yield from open_file(stages, level, target)
        with contextlib.suppress(OSError):  # on a full disk it is made again next time
            cache.save(key, file.sha256, time.time())
    cache.use(target)
    return file


def _kept(stages: Stages, level: Level, target: Path, key: str) -> Events[File | None]:
    """What an earlier run made, if it is still as it was made; else nothing is left of it."""
    if not target.exists():
        return None
    known = stages.cache.load(key, str, math.inf)
    with contextlib.suppress(ModelFileError, StageFailed):
        file = yield from open_file(stages, level, target)
        if known is not None and known[0] == file.sha256:
            return file
    remove(target)
    return None
