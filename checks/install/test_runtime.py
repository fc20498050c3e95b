"""One C++ runtime for all libraries, whatever the compiler does by itself."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from scripts.install.runtime import SHARED, linker_flags

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("g++") or not shutil.which("readelf"),
    reason="needs g++ and readelf on Linux",
)


def test_an_ordinary_compiler_needs_no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++")
    assert linker_flags() == []


def test_a_compiler_that_links_it_statically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its libraries get the shared runtime, and the installer says so."""
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\nexec g++ -static-libstdc++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert all(SHARED in flag for flag in linker_flags())
    assert len(linker_flags()) == 2
    assert "links libstdc++ into each library" in capsys.readouterr().err


def test_where_nothing_links_the_build_tells_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    assert linker_flags() == []
