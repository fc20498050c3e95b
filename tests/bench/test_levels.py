"""Which levels a run has, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.support.models import ggufs
from tests.support.models.adapters import write_lora
from worker.bench.plan import (
    QUANTS,
    FitSize,
    Level,
    held_out_part,
    levels_of_files,
    levels_of_source,
    open_corpus,
    paths_by_name,
    with_adapters,
)
from worker.bench.quality.windows import text_of
from worker.bench.texts import split_texts
from worker.cli.bench import levels_of
from worker.cli.main import parser
from worker.cli.options import settings_from
from worker.errors import ModelFileError, UsageError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One small model in several encodings, and another one."""
    folder = tmp_path_factory.mktemp("files")
    made = {
        name: ggufs.write_llama(folder / f"model-{name}.gguf", encoding=name)
        for name in ("F32", "F16", "Q8_0", "Q4_0")
    }
    return made | {"other": ggufs.write_llama(folder / "other.gguf", layers=3)}


def names(levels: tuple[Level, ...]) -> list[str]:
    """In the order of the run."""
    return [level.name for level in levels]


def test_a_plain_file_is_quantised(files: dict[str, Path]) -> None:
    """The file is the reference and the source of all others, once each."""
    levels, source = levels_of_source(files["F16"], None, None)
    assert names(levels) == ["F16", *QUANTS]
    assert source == files["F16"]
    assert levels[0].path == str(files["F16"])
    assert all(level.path is None and level.quant == level.name for level in levels[1:])
    levels, _ = levels_of_source(files["F16"], ["q8_0", "Q4_K_M", "Q8_0"], None)
    assert names(levels) == ["F16", "Q8_0", "Q4_K_M"]


def test_the_reference_can_be_a_level_made_here(files: dict[str, Path]) -> None:
    """For a machine that cannot hold the plain file; that is then measured when asked for."""
    levels, _ = levels_of_source(files["F16"], ["Q4_K_M"], "Q8_0")
    assert names(levels) == ["Q8_0", "Q4_K_M"]
    assert levels[0].quant == "Q8_0"
    levels, _ = levels_of_source(files["F16"], ["Q4_K_M", "F16"], "Q8_0")
    assert names(levels) == ["Q8_0", "Q4_K_M", "F16"]
    levels, _ = levels_of_source(files["F16"], ["Q4_K_M"], "F16")
    assert names(levels) == ["F16", "Q4_K_M"]


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("fit:4.30", Level(name="fit:4.3", path=None, fit=FitSize(bits=4.3))),
        ("FIT: 5", Level(name="fit:5", path=None, fit=FitSize(bits=5.0))),
        ("fit:2MiB", Level(name="fit:2MiB", path=None, fit=FitSize(nbytes=2 << 20))),
    ],
)
def test_a_fit_is_a_level_of_a_source(name: str, level: Level, files: dict[str, Path]) -> None:
    """By bits per weight or by bytes; beside files that were given, and of a source that is
    quantized, there is none."""
    levels, _ = levels_of_source(files["F16"], ["Q8_0", name, name], None)
    assert levels[2:] == (level,)
    with pytest.raises(UsageError, match="lose quality twice"):
        levels_of_source(files["Q8_0"], [name], None)
    with pytest.raises(UsageError, match="None of the files is"):
        levels_of_files(paths_by_name([files["F16"], files["Q8_0"]]), [name], None)


def test_a_fit_is_scored_on_text_that_did_not_choose_it(tmp_path: Path) -> None:
    """The corpus of its run is every third piece, with a hash and a name of its own."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{number:03} {'x' * 95}\n" for number in range(90)))
    whole = open_corpus(path)
    part = held_out_part(whole)
    assert text_of(part) == split_texts((text_of(whole),))[1]
    assert (part.name, part.nbytes) == ("text.txt (every third piece)", 3000)
    assert part.sha256 != whole.sha256
    path.write_text("short")
    with pytest.raises(UsageError, match="too short: two thirds of it choose the fit"):
        held_out_part(open_corpus(path))
    with pytest.raises(UsageError, match="has changed meanwhile"):
        text_of(part)


def test_a_quantised_file_stands_alone(files: dict[str, Path]) -> None:
    """It is measured, and not quantised twice."""
    levels, source = levels_of_source(files["Q8_0"], None, None)
    assert names(levels) == ["Q8_0"]
    assert source is None
    with pytest.raises(UsageError, match="lose quality twice"):
        levels_of_source(files["Q8_0"], ["Q4_0"], None)


def test_of_several_files_the_largest_encoding_is_the_reference(files: dict[str, Path]) -> None:
    """In whatever order they come; the others follow by their bits."""
    given = paths_by_name([files["Q4_0"], files["F32"], files["Q8_0"]])
    assert list(given) == ["Q4_0", "F32", "Q8_0"]
    assert names(levels_of_files(given, None, None)) == ["F32", "Q8_0", "Q4_0"]
    assert names(levels_of_files(given, None, "q8_0")) == ["Q8_0", "F32", "Q4_0"]
    assert names(levels_of_files(given, ["Q4_0"], "F32")) == ["F32", "Q4_0"]


def test_files_of_one_encoding_go_by_their_names(files: dict[str, Path], tmp_path: Path) -> None:
    """Two mixes with one label are told apart."""
    twin = ggufs.write_llama(tmp_path / "twin.gguf", encoding="Q8_0")
    given = paths_by_name([files["F16"], files["Q8_0"], twin])
    assert list(given) == ["F16", "model-Q8_0", "twin"]


def test_files_of_one_name_go_by_their_paths(files: dict[str, Path], tmp_path: Path) -> None:
    """As two publishers have them: in one encoding, under one name, in two folders."""
    (tmp_path / "other").mkdir()
    twin = ggufs.write_llama(tmp_path / "other" / files["Q8_0"].name, encoding="Q8_0")
    given = paths_by_name([files["F16"], files["Q8_0"], twin])
    assert list(given) == ["F16", str(files["Q8_0"].with_suffix("")), str(twin.with_suffix(""))]
    (tmp_path / "link.gguf").symlink_to(twin)
    with pytest.raises(UsageError, match="given twice"):
        paths_by_name([twin, tmp_path / "link.gguf"])


def test_a_file_with_and_without_adapters(files: dict[str, Path], tmp_path: Path) -> None:
    """It is not quantised, and each adapter is a level beside it."""
    adapter = write_lora(tmp_path / "tales.gguf", files["F16"], 1)

    def found(*words: str | Path) -> list[str]:
        arguments = parser("bench").parse_args(["bench", *map(str, words)])
        settings = settings_from(arguments)
        return names(with_adapters(levels_of(arguments, settings)[0], settings.lora))

    assert found(files["F16"], "--lora", adapter) == ["F16", "F16+tales"]
    both = f"{adapter}=a,{adapter}=b:2"
    assert found(files["Q8_0"], "--lora", both) == ["Q8_0", "Q8_0+a", "Q8_0+b"]
    with pytest.raises(UsageError, match="beside one file"):
        found(files["F16"], files["Q8_0"], "--lora", adapter)
    with pytest.raises(UsageError, match="beside one file"):
        found(files["F16"], "--quants", "Q8_0", "--lora", adapter)
    with pytest.raises(ModelFileError, match="changes"):
        found(files["other"], "--lora", write_lora(tmp_path / "wide.gguf", wide(tmp_path), 1))


def wide(folder: Path) -> Path:
    """Another model."""
    return ggufs.write_llama(folder / "wide.gguf", embedding=128)


@pytest.mark.parametrize(
    ("given", "quants", "reference", "word"),
    [
        (["F16", "other"], None, None, "not of one model"),
        (["F16", "Q8_0"], None, "Q2_K", "None of the files is Q2_K"),
        (["F16", "Q8_0"], ["Q2_K"], None, "None of the files is Q2_K"),
        (["F16", "Q8_0"], ["Q8_0", "nonsense"], None, "None of the files is nonsense"),
        (["F16", "F16"], None, None, "given twice"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    files: dict[str, Path], given: list[str], quants: list[str] | None, reference: str | None,
    word: str,
) -> None:  # fmt: skip
    """With the reason."""
    with pytest.raises(UsageError, match=word):
        levels_of_files(paths_by_name([files[name] for name in given]), quants, reference)


def test_an_unknown_type_is_refused_at_once(files: dict[str, Path]) -> None:
    """Before anything is measured."""
    with pytest.raises(UsageError, match="Q9_K"):
        levels_of_source(files["F16"], ["Q9_K"], None)


def test_a_name_stands_for_all_its_encodings_that_are_here(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were pulled; one of them named with its encoding stands alone."""
    catalog = tmp_path / "models.toml"
    catalog.write_text(
        '[tiny]\nrepo = "org/tiny"\nlicense = "none"\nparameters = 1\ncontext = 1\n'
        'quants = ["F16", "Q8_0", "Q4_0"]\nfile = "tiny-{QUANT}.gguf"\n'
    )
    snapshot = tmp_path / "hub" / "models--org--tiny" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    for name in ("F16", "Q8_0"):
        (snapshot / f"tiny-{name}.gguf").write_bytes(files[name].read_bytes())
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def found(*words: str) -> list[str]:
        arguments = parser("bench").parse_args(["bench", *words, "--catalog", str(catalog)])
        return names(levels_of(arguments, settings_from(arguments))[0])

    assert found("tiny") == ["F16", "Q8_0"]
    assert found("tiny", "--quants", "Q8_0", "--reference", "F16") == ["F16", "Q8_0"]
    assert found("tiny:Q8_0") == ["Q8_0"]
    assert found("tiny:F16", "--quants", "Q4_0") == ["F16", "Q4_0"]
    with pytest.raises(ModelFileError, match="worker pull tiny:Q4_0"):
        found("tiny:Q4_0")
