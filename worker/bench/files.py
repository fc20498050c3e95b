"""A level's file: the one that was given, or one made from the source and kept."""

from __future__ import annotations

from pathlib import Path

import msgspec

from worker.bench.job import QuantiseAnswer, QuantiseJob
from worker.bench.plan import Level, Plan
from worker.bench.stages import Events, Stages
from worker.model.config import ModelConfig, load_config


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A level's file, with its first file's content hash."""

    path: str
    sha256: str
    config: ModelConfig


def open_file(stages: Stages, level: Level, path: Path) -> Events[File]:
    """A file that exists, read and hashed. Raises ModelFileError."""
    config = load_config(path)
    sha256 = yield from stages.hash(level.name, path)
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
        maker += "-" + (yield from stages.hash(level.name, Path(plan.imatrix)))[:16]
    target = cache.quant(source.sha256, maker, Path(source.path), level.quant)
    if not target.exists():
        cache.make_room(source.config.n_params * 9 // 8, keep)  # no level takes more than 9 bits
        target.parent.mkdir(parents=True, exist_ok=True)
        job = QuantiseJob(
            source=source.path, target=str(target), type_name=level.quant,
            imatrix=plan.imatrix, threads=plan.threads,
        )  # fmt: skip
        yield from stages.run(level.name, "quantise", job, QuantiseAnswer, None)
    cache.use(target)
    return (yield from open_file(stages, level, target))
