"""Memory that runs out is told as such, whatever Python calls it."""

from __future__ import annotations

import errno

import pytest

from worker.cli import main, version
from worker.errors import DoesNotFitError, out_of_memory

SPENT: list[Exception] = [
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    RuntimeError("can't start new thread"),
    ImportError("libx.so: failed to map segment from shared object"),
    ImportError("libx.so: cannot allocate memory in static TLS block"),
]


@pytest.mark.parametrize("error", SPENT, ids=repr)
def test_exit_code(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command leaves with 4 and says it in one line."""
    assert isinstance(out_of_memory(error), DoesNotFitError)

    def fail(_arguments: object) -> int:
        raise error

    monkeypatch.setattr(version, "run", fail)
    assert main.main(["version"]) == 4
    assert capsys.readouterr().err == (
        "error: DOES_NOT_FIT: Memory ran out. Free some, or raise the limit.\n"
    )


def test_other_errors() -> None:
    """They keep what they are."""
    for error in (ImportError("no module named x"), RuntimeError("no"), OSError(2, "x")):
        assert out_of_memory(error) is None
