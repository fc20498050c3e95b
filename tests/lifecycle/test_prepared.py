"""What is decided before anything is loaded: the projector."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from tests.support.models.projectors import write_llava
from worker import log
from worker.errors import UsageError
from worker.lifecycle.prepared import check_task, find_projector
from worker.llama import library
from worker.model.config import load_config
from worker.settings import Settings


def test_a_build_that_reads_no_media(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A projector that is asked for ends the start; one that lies there is told, and not used."""
    model, projector = write_llava(tmp_path)
    config = load_config(model)
    monkeypatch.setenv("MTMD_CPP_LIB", str(tmp_path))
    assert not library.reads_media()
    log.configure("console")
    with capture_logs() as lines:
        assert find_projector(config, Settings()) is None
    log.configure("console", quiet=True)
    assert [line["file"] for line in lines] == [projector.name]
    with pytest.raises(UsageError, match="has no libmtmd") as caught:
        find_projector(config, Settings(mmproj=str(projector)))
    assert "make install" in str(caught.value.hint)
    (tmp_path / "libmtmd.so").touch()
    found = find_projector(config, Settings())
    assert found is not None
    assert found.path == str(projector)
    assert find_projector(config, Settings(mmproj_auto=False)) is None


def test_vectors_of_texts_have_no_pictures(tmp_path: Path) -> None:
    """A projector beside such a model is left alone, and one that is named refused."""
    config = replace(load_config(write_llava(tmp_path)[0]), kind="encoder")
    assert find_projector(config, Settings()) is None
    with pytest.raises(UsageError, match="--mmproj is for text"):
        check_task(config, Settings(mmproj="x"))
