"""The process that makes vectors, within its bounds of time and memory."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.models.projectors import SEEING, blank_png, png, wav, write_hearing
from tests.support.programs.processes import until
from worker.errors import ModelLoadError, RequestError
from worker.isolation import sandbox
from worker.llama.media.encoder import MediaEncoder
from worker.llama.media.frames import EncoderSetup

pytestmark = pytest.mark.mtmd


@pytest.fixture(scope="module")
def large() -> bytes:
    """A picture that takes seconds to read."""
    return blank_png(7000, 7000)


@contextmanager
def encoding(
    model: Path,
    projector: Path,
    *,
    seconds: float = 60,
    megabytes: int = 1024,
    longest: float = 100,
    reads: bool = True,
) -> Generator[MediaEncoder]:
    setup = EncoderSetup(
        model=str(model),
        projector=str(projector),
        threads=1,
        gpu=False,
        seconds=seconds,
        megabytes=megabytes,
        rows=1000,
        longest=longest,
        reads=(str(model), str(projector)) if reads else (str(model),),
    )
    with contextlib.closing(MediaEncoder(setup)) as encoder:
        yield encoder


def is_encoded(encoder: MediaEncoder) -> bool:
    try:
        encoder.encode(png())
    except RequestError:
        return False
    return True


@pytest.mark.parametrize("name", SEEING)
def test_vectors(tmp_path: Path, name: str) -> None:
    """They depend on the picture alone, not on what was read before."""
    with encoding(*SEEING[name](tmp_path)) as encoder:
        encoder.wait()
        assert encoder.ready.sees
        assert not encoder.ready.hears
        first, other = encoder.encode(png()), encoder.encode(png(seed=1))
        assert first != other
        assert encoder.encode(png()) == first


def test_a_rest(tmp_path: Path) -> None:
    """The next medium is read as before."""
    with encoding(*SEEING["llava"](tmp_path)) as encoder:
        encoder.wait()
        expected = encoder.encode(png())
        for _ in range(2):
            encoder.rest()
            assert encoder.encode(png()) == expected
        encoder.rest()


def test_its_time(tmp_path: Path, large: bytes) -> None:
    """What takes longer is ended by an alarm; then others are read."""
    with encoding(*SEEING["llava"](tmp_path), seconds=0.05) as encoder:
        encoder.wait()
        with pytest.raises(RequestError, match=r"took more than 0.05 seconds") as caught:
            encoder.encode(large)
        assert caught.value.code == "bad_medium"
        until(lambda: is_encoded(encoder))


def test_its_memory(tmp_path: Path, large: bytes) -> None:
    """What needs more is refused; then others are read."""
    with encoding(*SEEING["llava"](tmp_path), megabytes=100) as encoder:
        encoder.wait()
        with pytest.raises(RequestError, match="It cannot be read") as caught:
            encoder.encode(large)
        assert caught.value.code == "bad_medium"
        assert is_encoded(encoder)


def test_its_length(tmp_path: Path) -> None:
    """A sound that is too long is refused; then others are read."""
    with encoding(*write_hearing(tmp_path), longest=2) as encoder:
        encoder.wait()
        with pytest.raises(RequestError, match=r"3 seconds long, 2 is most") as caught:
            encoder.encode(wav(3 * 16_000))
        assert caught.value.code == "bad_medium"
        assert encoder.encode(wav(16_000)).pieces


def test_its_vectors(tmp_path: Path) -> None:
    """A sound of more than the context holds is refused before its vectors are made."""
    with encoding(*write_hearing(tmp_path)) as encoder:
        encoder.wait()
        assert encoder.ready.hears
        pieces = encoder.encode(wav(640 * 900)).pieces
        assert [piece.length for piece in pieces if piece.vectors] == [900]
        around = sum(len(piece.tokens) for piece in pieces)
        with pytest.raises(RequestError, match=r"takes 1001 tokens, and the context holds 1000"):
            encoder.encode(wav(640 * (1001 - around)))


def test_another_models_projector(tmp_path: Path) -> None:
    """It does not load: its vectors have another width, or it is damaged."""
    model, projector = SEEING["llava"](tmp_path)
    whole = projector.read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: len(whole) // 2])
    for wrong in (cut, model):
        with encoding(model, wrong) as encoder, pytest.raises(ModelLoadError, match="projector"):
            encoder.wait()


@pytest.mark.skipif(
    sandbox.version() < sandbox.NEEDED, reason="no Landlock with rules for TCP (Linux 6.7)"
)
def test_its_reach(tmp_path: Path) -> None:
    """It opens no file that it was not told of."""
    with (
        encoding(*SEEING["llava"](tmp_path), reads=False) as encoder,
        pytest.raises(ModelLoadError, match="cannot be used"),
    ):
        encoder.wait()
