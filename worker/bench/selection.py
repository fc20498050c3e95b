"""Which levels a run has, from the files and names that were given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from worker.bench.plan import QUANTS, Level
from worker.errors import UsageError
from worker.gguf.quant import ENCODINGS
from worker.llama.quantize.plan import type_named
from worker.model.config import ModelConfig, load_config

_PLAIN = frozenset(encoding.name for encoding in ENCODINGS.values() if not encoding.quantized)


def levels_of_source(
    path: Path, quants: Sequence[str] | None, reference: str | None
) -> tuple[tuple[Level, ...], Path | None]:
    """Levels of one file, the reference first, and the source that they are quantised from.

    A file in F16, BF16 or F32 is quantised; one that is quantised already stands alone.
    Raises UsageError, ModelFileError.
    """
    config = load_config(path)
    own = Level(name=config.quant, path=str(path))
    if config.quant not in _PLAIN:
        if quants or reference not in (None, config.quant):
            raise UsageError(
                f"{path.name} is {config.quant}, and quantising it again would lose quality twice.",
                hint="Give its F16, BF16 or F32 file, or several files of the model.",
            )
        return (own,), None
    wanted = list(dict.fromkeys(map(type_named, QUANTS if quants is None else quants)))
    first = own
    if reference is not None and type_named(reference) != config.quant:
        first = Level(name=type_named(reference), path=None, quant=type_named(reference))
    others = [name for name in wanted if name not in (first.name, own.name)]
    levels = [first, *(Level(name=name, path=None, quant=name) for name in others)]
    if own.name in wanted and first is not own:
        levels.append(own)
    return tuple(levels), path


def levels_of_files(
    files: Mapping[str, Path], quants: Sequence[str] | None, reference: str | None
) -> tuple[Level, ...]:
    """Levels of several files of one model, by the name to show; the reference first.

    The reference is the one named, or the one with the most bits per weight.
    Raises UsageError, ModelFileError.
    """
    configs = {name: load_config(path) for name, path in files.items()}
    _check_one_model(configs)
    chosen = list(files)
    if quants is not None:
        known = {name.upper() for name in files}
        if absent := [name for name in quants if name.upper() not in known]:
            raise UsageError(
                f"None of the files is {' or '.join(absent)}.",
                hint=f"There are {', '.join(files)}.",
            )
        asked = {name.upper() for name in quants} | {(reference or "").upper()}
        chosen = [name for name in files if name.upper() in asked]
    names = {name.upper(): name for name in chosen}
    if reference is not None and reference.upper() not in names:
        raise UsageError(
            f"None of the files is {reference}.", hint=f"There are {', '.join(files)}."
        )
    first = names[reference.upper()] if reference else max(chosen, key=lambda n: _bits(configs[n]))
    ordered = sorted((name for name in chosen if name != first), key=lambda n: -_bits(configs[n]))
    return tuple(Level(name=name, path=str(files[name])) for name in (first, *ordered))


def named_by_encoding(paths: Sequence[Path]) -> dict[str, Path]:
    """Files by the name of their encoding; by their own where two have the same one, and by
    their path where that is the same too."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("A file was given twice.")
    labels = [load_config(path).quant for path in paths]
    names = [
        label if labels.count(label) == 1 else path.stem
        for label, path in zip(labels, paths, strict=True)
    ]
    names = [
        name if names.count(name) == 1 else str(path.with_suffix(""))
        for name, path in zip(names, paths, strict=True)
    ]
    return dict(zip(names, paths, strict=True))


def _bits(config: ModelConfig) -> float:
    return config.bits_per_weight


def _check_one_model(configs: Mapping[str, ModelConfig]) -> None:
    """Levels are compared token by token, so all files must be of one model."""
    shapes = {
        name: (config.architecture, config.layers, config.embedding, config.vocab_size)
        for name, config in configs.items()
    }
    if len(set(shapes.values())) > 1:
        listed = "; ".join(f"{name}: {' '.join(map(str, shape))}" for name, shape in shapes.items())
        raise UsageError(
            f"The files are not of one model ({listed}).", hint="Give files of one model."
        )
