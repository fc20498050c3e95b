"""The name of one file of a split model tells all the others."""

from __future__ import annotations

import pytest

from worker.gguf.split_name import SplitName, all_files


def test_the_first_name_tells_all() -> None:
    """A name that is no split's stands for one file."""
    assert all_files("a/b.gguf") == ("a/b.gguf",)
    assert all_files("a/b-00001-of-00003.gguf") == (
        "a/b-00001-of-00003.gguf", "a/b-00002-of-00003.gguf", "a/b-00003-of-00003.gguf",
    )  # fmt: skip


def test_a_name_reads_back() -> None:
    """What is parsed is written again as it was."""
    name = SplitName.parse("x-00001-of-00002-00007-of-00010.gguf")
    assert name is not None
    assert name == SplitName("x-00001-of-00002", 7, 10)
    assert str(name) == "x-00001-of-00002-00007-of-00010.gguf"
    assert not name.is_first


@pytest.mark.parametrize(
    "name",
    ["m.gguf", "-00001-of-00002.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf",
     "m-00001-of-00000.gguf", "m-1-of-2.gguf", "m-00001-of-00002.bin", "m-000001-of-00002.gguf"],
)  # fmt: skip
def test_other_names(name: str) -> None:
    """A number outside of the count, or of another length, is no split's."""
    assert SplitName.parse(name) is None
    assert all_files(name) == (name,)
