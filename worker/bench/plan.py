"""From what was given on the command line to what will be run: the levels and the plan.

The reference is the level that all others are compared with; it is the first one of a plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from worker.bench.sizes import Effort, Sizes
from worker.bench.texts import split_texts
from worker.errors import UsageError
from worker.files import is_device
from worker.gguf.quant import ENCODINGS
from worker.llama.quantize.plan import type_named
from worker.memory.contexts import whole_cells
from worker.model.adapter import load_adapter
from worker.model.config import ModelConfig, load_config
from worker.settings import AdapterSpec, Settings
from worker.values import number
from worker.values import size as file_size

Questions = Literal["demo", "general"]

QUANTS = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q3_K_M", "Q2_K")
QUICK_QUANTS = ("Q8_0", "Q5_K_M", "Q4_K_M", "Q3_K_M")
GENERAL_TEXT = Path(__file__).parent / "quality" / "general.txt"
_PLAIN = frozenset(encoding.name for encoding in ENCODINGS.values() if not encoding.quantized)
_MAX_TEXT_BYTES = 64 << 20
_FIT_BITS = 1.0, 16.0  # per weight


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """The text that quality is measured on: its name, its content's hash, its size.

    held_out  it is the part of the file that no fit is chosen by
    """

    name: str
    path: str
    sha256: str
    nbytes: int
    held_out: bool = False


class FitSize(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a fit: bits per weight, or bytes of the file; one of the two."""

    bits: float | None = None
    nbytes: int | None = None


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One level: its name in the report, and its file; None until the file is made.

    quant  type that the source is quantised to; None for a file that was given, and for a fit
    fit    size of a mix of encodings that is chosen for the source
    lora   adapter that it is computed with
    """

    name: str
    path: str | None
    quant: str | None = None
    fit: FitSize | None = None
    lora: AdapterSpec | None = None


class BenchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run needs to know.

    source   file that levels are quantised from; None where all files were given
    imatrix  importance matrix for that
    time_s   that the whole run may take
    own_questions  and how many there are; they stand in the place of those of the set `questions`
    threads  of every measurement: those of the settings, or all CPUs
    """

    levels: tuple[Level, ...]
    source: str | None
    imatrix: str | None
    settings: Settings
    effort: Effort
    threads: int
    corpus: Corpus | None
    questions: Questions
    max_kld: float
    time_s: float = 300.0
    own_questions: tuple[Corpus, int] | None = None
    fresh: bool = False

    @property
    def fits(self) -> tuple[Level, ...]:
        return tuple(level for level in self.levels if level.fit is not None)


def settings_of(plan: BenchPlan, sizes: Sizes) -> Settings:
    """The worker's settings while speed is measured: cells for all streams at full depth.

    Each stream's cells are a multiple of CELL_STEP, so that it can have them for itself.
    """
    longest = max(sizes.depth + max(sizes.prompt, sizes.decode), sizes.prompt + sizes.decode) + 8
    longest = whole_cells(longest)
    return msgspec.structs.replace(
        plan.settings, threads=plan.threads, ctx_size=plan.settings.slots * longest
    )


def open_corpus(path: Path) -> Corpus:
    """Look at a text file. Raises UsageError where it is none."""
    try:
        if is_device(path):
            raise UsageError(
                f"{path} is no regular file, and the text is read more than once.",
                hint="Write the text to a file.",
            )
        raw = path.read_bytes() if path.stat().st_size <= _MAX_TEXT_BYTES else None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", hint="Name a text in UTF-8."
        ) from None
    if raw is None:
        raise UsageError(
            f"{path} is larger than {_MAX_TEXT_BYTES >> 20} MiB.", hint="Give a part of it."
        )
    try:
        is_blank = not raw.decode().strip()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 at byte {error.start}.", hint="Name a text in UTF-8."
        ) from None
    if is_blank:
        raise UsageError(
            f"{path} holds blank lines only.", hint="Name a text that the model could have learned."
        )
    return Corpus(
        name=path.name, path=str(path), sha256=hashlib.sha256(raw).hexdigest(), nbytes=len(raw)
    )


def held_out_part(corpus: Corpus) -> Corpus:
    """The part of a text that no fit is chosen by. Raises UsageError if it has none."""
    text = split_texts((Path(corpus.path).read_bytes().decode(),))[1]
    if not text.strip():
        raise UsageError(
            f"{corpus.name} is too short: two thirds of it choose the fit, and one is scored.",
            hint="Name a longer one with --text.",
        )
    raw = text.encode()
    return Corpus(
        name=f"{corpus.name} (every third piece)",
        path=corpus.path,
        sha256=hashlib.sha256(raw).hexdigest(),
        nbytes=len(raw),
        held_out=True,
    )


def level_to_make(name: str) -> Level:
    """A level that is made of a source: a type, or `fit:` with a size. Raises UsageError."""
    kind, colon, size = name.partition(":")
    if not colon or kind.strip().lower() != "fit":
        label = type_named(name)
        return Level(name=label, path=None, quant=label)
    size = size.replace(" ", "")
    try:
        if size[-1:].isdigit():
            bits = number(*_FIT_BITS)(size)
            return Level(name=f"fit:{bits:g}", path=None, fit=FitSize(bits=bits))
        nbytes = file_size(size)
    except ValueError as error:
        raise UsageError(
            f"The size of {name} {error}.",
            hint="Write bits per weight, fit:4.3, or the size of the file, fit:6GiB.",
        ) from None
    return Level(name=f"fit:{size}", path=None, fit=FitSize(nbytes=nbytes))


def levels_of_source(
    path: Path,
    quants: Sequence[str] | None,
    reference: str | None,
    usual: Sequence[str] = QUANTS,
) -> tuple[tuple[Level, ...], Path | None]:
    """The levels of one file, and the source that they are quantised from.

    usual: levels of a source if none are named
    A file in F16, BF16 or F32 is quantised. A file that is quantised already is the only level.
    Raises UsageError, ModelFileError.
    """
    config = load_config(path, purpose="serve")
    own = Level(name=config.quant, path=str(path))
    if config.quant not in _PLAIN:
        if quants or reference not in (None, config.quant):
            raise UsageError(
                f"{path.name} is {config.quant}, and quantizing it again would lose quality twice.",
                hint="Give its F16, BF16 or F32 file, or several files of the model.",
            )
        return (own,), None
    made = [level_to_make(name) for name in (usual if quants is None else quants)]
    wanted = {level.name: level for level in made}
    first = own
    if reference is not None and type_named(reference) != config.quant:
        first = level_to_make(reference)
    levels = [first, *(wanted[name] for name in wanted if name not in (first.name, own.name))]
    if own.name in wanted and first is not own:
        levels.append(own)
    return tuple(levels), path


def levels_of_files(
    files: Mapping[str, Path], quants: Sequence[str] | None, reference: str | None
) -> tuple[Level, ...]:
    """The levels of several files of one model; `files` has them by the name to show.

    The reference is the level that `reference` names, else the one with the most bits per weight.
    Raises UsageError, ModelFileError.
    """
    configs = {name: load_config(path, purpose="serve") for name, path in files.items()}
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
    ordered = sorted(chosen, key=lambda name: -configs[name].bits_per_weight)
    first = names[reference.upper()] if reference else ordered[0]
    ordered.remove(first)
    return tuple(Level(name=name, path=str(files[name])) for name in (first, *ordered))


def with_adapters(levels: Sequence[Level], adapters: Sequence[AdapterSpec]) -> tuple[Level, ...]:
    """A file, and again with each of these. Raises UsageError, ModelFileError."""
    first = levels[0]
    if len(levels) > 1 or first.path is None:
        raise UsageError(
            "Adapters are measured beside one file.", hint="Name one, and leave out --quants."
        )
    found = [first]
    for spec in adapters:
        load_adapter(spec.file, first.path)
        name = f"{first.name}+{spec.name or Path(spec.file).stem}"
        found.append(Level(name=name, path=first.path, lora=spec))
    return tuple(found)


def paths_by_name(paths: Sequence[Path]) -> dict[str, Path]:
    """Files by the names to show: the encoding, `Q8_0`. Where two files have the same encoding,
    their file names; where those are the same too, their paths."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("A file was given twice.", hint="Name each file once.")
    names = [load_config(path, purpose="serve").quant for path in paths]
    for longer in ([path.stem for path in paths], [str(path.with_suffix("")) for path in paths]):
        pairs = zip(names, longer, strict=True)
        names = [name if names.count(name) == 1 else other for name, other in pairs]
    return dict(zip(names, paths, strict=True))


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
