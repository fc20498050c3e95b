"""models.toml, and the texts that name a model."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from worker.errors import DoesNotFitError, UsageError
from worker.gguf.quant import FILE_TYPES, label_in_name
from worker.hub.catalog import load_catalog
from worker.hub.choice import OfferedFile, choose, companions, offers, only
from worker.hub.name import Named, Reference, Remote, parse
from worker.machine import Memory

ROOT = Path(__file__).parents[2]
GOOD = """
[mine]
repo = "org/mine-GGUF"
license = "mit"
parameters = 7
context = 4096
quants = ["q4_k_m"]
file = "mine-{quant}.gguf"
"""


def test_the_packaged_catalogue_is_sound() -> None:
    """Every entry passes the checks, and its file names say the encodings that they stand for."""
    entries = load_catalog().entries
    assert {"tinyllama", "llama-2-7b", "llama-2-13b", "llama-2-70b"} <= set(entries)
    known = {label for label, _ in FILE_TYPES.values()}
    for entry in entries.values():
        assert set(entry.labels) <= known
        for label in entry.labels:
            assert label_in_name(entry.first_file(label)) == label


def test_the_catalogue_goes_into_the_wheel() -> None:
    """The build puts models.toml where an installed package looks for it."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["force-include"] == {"models.toml": "worker/models.toml"}
    assert (ROOT / "models.toml").is_file()


def test_the_users_own_catalogue_is_added_and_wins(tmp_path: Path) -> None:
    """Its entries stand beside the packaged ones and replace those of the same name."""
    own = tmp_path / "own.toml"
    own.write_text(GOOD + GOOD.replace("[mine]", "[tinyllama]"))
    catalog = load_catalog(str(own))
    assert catalog.find("mine").first_file("Q4_K_M") == "mine-q4_k_m.gguf"
    assert catalog.find("TinyLlama").repo == "org/mine-GGUF"
    assert "llama-2-7b" in catalog.entries


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (("[mine]", "[Mine]"), "the name must be"),
        (('repo = "org/mine-GGUF"', 'repo = "mine"'), "repo must be ORGANIZATION/NAME"),
        (('repo = "org/mine-GGUF"', ""), "`repo`"),
        (("parameters = 7", 'parameters = "7"'), "`$.parameters`"),
        (("context = 4096", "context = 0"), "context must be at least 1"),
        (("quants", "quant"), "`quant`"),
        (('quants = ["q4_k_m"]', ""), "there must be quants or files"),
        (("mine-{quant}.gguf", "mine.gguf"), "quants need a file"),
        (("mine-{quant}.gguf", "../mine-{quant}.gguf"), "no .gguf file inside"),
        (("mine-{quant}.gguf", "mine-{quant}.bin"), "no .gguf file inside"),
        (("q4_k_m", "q4 k"), "no name of an encoding"),
        (("context = 4096", 'context = 4096\nrevision = ""'), "revision must not be empty"),
        (("context = 4096", 'context = 4096\nrevision = "a/../../b"'), "revision must be a branch"),
        (("context = 4096", 'context = 4096\nsha256 = {"x.gguf" = "0"}'), "which is no file of it"),
        (("context = 4096", 'context = 4096\nsha256 = {"mine-q4_k_m.gguf" = "0"}'),
         "64 lower-case hexadecimal digits"),
        (("[mine]", "[mine"), "is no TOML"),
    ],
)  # fmt: skip
def test_mistakes_in_an_entry_are_named(tmp_path: Path, change: tuple[str, str], part: str) -> None:
    """One sentence that names the file, and the entry where it is one entry's mistake."""
    own = tmp_path / "own.toml"
    own.write_text(GOOD.replace(*change))
    with pytest.raises(UsageError) as caught:
        load_catalog(str(own))
    assert part in caught.value.message
    assert str(own) in caught.value.message
    if "TOML" not in part:
        assert "entry 'mine'" in caught.value.message.lower()


@pytest.mark.parametrize("content", [None, b"\xff\xfe[mine]", b"a = " + b"[" * 5000])
def test_a_catalogue_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    """A missing file, one that is no text and one of lists in each other are mistakes of usage."""
    own = tmp_path / "own.toml"
    if content is not None:
        own.write_bytes(content)
    with pytest.raises(UsageError, match=r"The catalogue .*own\.toml"):
        load_catalog(str(own))


def test_unknown_names_get_suggestions() -> None:
    """For a name that is nearly right the error suggests the right one."""
    with pytest.raises(UsageError) as caught:
        load_catalog().find("tinylama")
    assert caught.value.hint
    assert "Did you mean tinyllama" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tinyllama", Named("tinyllama", None)),
        ("tinyllama:q4_k_m", Named("tinyllama", "Q4_K_M")),
        ("qwen2.5-7b:Q8_0", Named("qwen2.5-7b", "Q8_0")),
        ("org/repo", Remote("org/repo", "main", None, None)),
        ("org/repo@v1:q8_0", Remote("org/repo", "v1", "Q8_0", None)),
        ("hf:org/repo:Q8_0", Remote("org/repo", "main", "Q8_0", None)),
        ("hf:org/repo@abc::file=sub/m.gguf", Remote("org/repo", "abc", None, "sub/m.gguf")),
        ("file:tinyllama", Path("tinyllama")),
        ("file:/models/m.gguf", Path("/models/m.gguf")),
        ("m.gguf", Path("m.gguf")),
        ("org/m.gguf", Path("org/m.gguf")),
        ("/models/m", Path("/models/m")),
        ("./tinyllama", Path("tinyllama")),
        ("a/b/c", Path("a/b/c")),
        ("two words", Path("two words")),
    ],
)
def test_what_a_text_names(text: str, expected: Reference) -> None:
    """Names, repositories and paths are told apart by their form."""
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    ["hf:", "hf:one", "hf:a/b::file=x.bin", "hf:a/b::file=../x.gguf", "hf:a/b::file=/etc/x.gguf",
     "hf:a/b@../../x:Q8_0", "hf:a/b@/etc/x"],
)  # fmt: skip
def test_broken_references(text: str) -> None:
    """A text that begins with `hf:` and has another form is a mistake."""
    with pytest.raises(UsageError, match="no reference to a model"):
        parse(text)


def test_what_exists_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file or folder wins over a name and over a repository."""
    (tmp_path / "tinyllama").touch()
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "repo").touch()
    monkeypatch.chdir(tmp_path)
    assert parse("tinyllama") == Path("tinyllama")
    assert parse("org/repo") == Path("org/repo")


SIZES = {"Q2_K": 30, "Q4_K_M": 48, "Q8_0": 85, "Q8_K_XL": 99, "F16": 160}
GiB = 1 << 30


@pytest.mark.parametrize(
    ("available", "expected"), [(200, "Q8_0"), (103, "Q8_0"), (101, "Q4_K_M"), (37, "Q2_K")]
)
def test_the_largest_encoding_that_leaves_room(available: int, expected: str) -> None:
    """1.2 times the files and half a GiB have to fit, and nothing above Q8_0 is taken."""
    sizes = {label: size * GiB for label, size in SIZES.items()}
    memory = Memory(total=500 * GiB, available=available * GiB)
    assert choose(sizes, memory, "m") == expected


def test_none_fits() -> None:
    """The smallest encoding is named with what it needs, and how to take it all the same."""
    with pytest.raises(DoesNotFitError) as caught:
        choose({"Q2_K": 30 * GiB}, Memory(total=GiB, available=GiB), "m")
    assert "Q2_K, needs about 36.5 GiB" in caught.value.message
    assert "m:Q2_K" in (caught.value.hint or "")


def test_only_large_encodings() -> None:
    """Where a repository has only F16, that is taken."""
    memory = Memory(total=9 * GiB, available=9 * GiB)
    assert choose({"F16": GiB, "F32": 2 * GiB}, memory, "m") == "F32"


def test_models_among_files() -> None:
    """A split model counts once, and only if it is whole. Projectors and matrices do not count."""
    files = {
        "m-Q4_K_M.gguf": 4, "m-Q8_0-00001-of-00002.gguf": 5, "m-Q8_0-00002-of-00002.gguf": 6,
        "m-Q6_K-00001-of-00002.gguf": 3, "mmproj-m-f16.gguf": 2, "imatrix.gguf": 1,
        "Q5_K_M/m-00001-of-00001.gguf": 7, "m.gguf": 8,
    }  # fmt: skip
    assert offers(files, companions(files)) == [
        OfferedFile("Q4_K_M", ("m-Q4_K_M.gguf",), 4),
        OfferedFile("Q8_0", ("m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"), 11),
        OfferedFile("Q5_K_M", ("Q5_K_M/m-00001-of-00001.gguf",), 7),
        OfferedFile("", ("m.gguf",), 8),
    ]


def test_two_models_of_one_encoding_are_not_guessed_at() -> None:
    """Where two files have the same encoding, the user must name one."""
    found = offers({"a-Q8_0.gguf": 1, "b-Q8_0.gguf": 1})
    with pytest.raises(UsageError, match=r"2 models in Q8_0: a-Q8_0\.gguf, b-Q8_0\.gguf"):
        only(found, "Q8_0", "org/repo")
    with pytest.raises(UsageError, match="no Q2_K; its encodings: Q8_0"):
        only(found, "Q2_K", "org/repo")
