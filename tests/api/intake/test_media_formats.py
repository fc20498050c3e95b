"""The table of kinds of media."""

from __future__ import annotations

import pytest

from worker.api.intake.media_formats import MEDIUM_KINDS, MediumKind, check_format
from worker.errors import RequestError
from worker.lifecycle.loaded import PERCEIVES


def test_managers_know_each_kind() -> None:
    """Each kind that is decoded has the word that managers know."""
    assert {name for name, kind in MEDIUM_KINDS.items() if kind.formats} == PERCEIVES.keys()


@pytest.mark.parametrize(
    ("formats", "told"),
    [(("WAV",), "WAV"), (("WAV", "MP3"), "WAV or MP3"), (("A", "B", "C"), "A, B or C")],
)
def test_the_formats_are_told(
    formats: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error calls the medium by its own name and names all formats of its kind."""
    monkeypatch.setitem(MEDIUM_KINDS, "plan", MediumKind("A plan", "plan", formats))
    with pytest.raises(RequestError) as error:
        check_format(b"\x89PNG\r\n\x1a\n", "plan")
    assert error.value.message == "The plan is PNG, which is not read."
    assert error.value.hint == f"Send it as {told}."
