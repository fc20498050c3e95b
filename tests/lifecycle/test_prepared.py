"""What is decided before anything is loaded: the projector."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from tests.support.models.projectors import SEEING, png, write_llava
from worker import log
from worker.errors import ModelFileError, UsageError
from worker.lifecycle.prepared import check_task, find_projector
from worker.llama import library
from worker.llama.media.encoder import MediaEncoder
from worker.llama.media.frames import EncoderSetup
from worker.model.config import load_config
from worker.model.projector import load_projector
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
    log.configure("console", "error")
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


def test_a_projector_of_another_model(tmp_path: Path) -> None:
    """Named it is refused; beside the model it is left out, and the log says why."""
    model, projector = write_llava(tmp_path)
    config = replace(load_config(model), embedding=128)
    with pytest.raises(ModelFileError, match="embeddings of 64 numbers, and the model's have 128"):
        find_projector(config, Settings(mmproj=str(projector)))
    assert find_projector(config, Settings()) is None


@pytest.mark.skipif(not library.reads_media(), reason="this build has no libmtmd")
@pytest.mark.parametrize("kind", SEEING)
def test_cells_of_a_picture(kind: str, tmp_path: Path) -> None:
    """The largest picture takes as many as the file is read to say."""
    model, file = SEEING[kind](tmp_path)
    setup = EncoderSetup(
        model=str(model), projector=str(file), threads=1, gpu=False, seconds=60, megabytes=2048,
        longest=100, pixels=1_000_000,
        reads=(str(model), str(file)),
    )  # fmt: skip
    projector = load_projector(file)
    with contextlib.closing(MediaEncoder(setup)) as encoder:
        encoder.wait()
        made = encoder.encode(png(560, 560), "image")
    rows = sum(len(piece.vectors) for piece in made.pieces) // (4 * encoder.ready.width)
    assert encoder.ready.width == projector.output
    # Qwen2-VL's pictures keep their size, up to the largest.
    assert rows == {"qwen2vl": (560 // 14) ** 2}.get(kind, projector.cells)
    assert projector.cells >= rows
