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
        pixels=50_000_000,
        longest=longest,
        reads=(str(model), str(projector)) if reads else (str(model),),
    )
    with contextlib.closing(MediaEncoder(setup)) as encoder:
        yield encoder


def is_encoded(encoder: MediaEncoder) -> bool:
    try:
        encoder.encode(png(), "image")
    except RequestError:
        return False
    return True


@pytest.mark.parametrize("name", SEEING)
def test_vectors(tmp_path: Path, name: str) -> None:
    """They depend on the picture alone, not on what was read before."""
    with encoding(*SEEING[name](tmp_path)) as encoder:
        encoder.wait()
        assert encoder.ready.kinds == ("image",)
        first, other = encoder.encode(png(), "image"), encoder.encode(png(seed=1), "image")
        assert first != other
        assert encoder.encode(png(), "image") == first


def test_a_rest(tmp_path: Path) -> None:
    """The next medium is read as before."""
    with encoding(*SEEING["llava"](tmp_path)) as encoder:
        encoder.wait()
        expected = encoder.encode(png(), "image")
        for _ in range(2):
            encoder.rest()
            assert encoder.encode(png(), "image") == expected
        encoder.rest()


def test_its_time(tmp_path: Path, large: bytes) -> None:
    """What takes longer is ended by an alarm; then others are read."""
    with encoding(*SEEING["llava"](tmp_path), seconds=0.05) as encoder:
        encoder.wait()
        with pytest.raises(RequestError, match=r"took more than 0.05 seconds") as caught:
            encoder.encode(large, "image")
        assert caught.value.code == "bad_medium"
        until(lambda: is_encoded(encoder))


def test_its_memory(tmp_path: Path, large: bytes) -> None:
    """What needs more is refused; then others are read."""
    with encoding(*SEEING["llava"](tmp_path), megabytes=100) as encoder:
        encoder.wait()
        with pytest.raises(RequestError, match="It cannot be read") as caught:
            encoder.encode(large, "image")
        assert caught.value.code == "bad_medium"
        assert is_encoded(encoder)


def test_its_length(tmp_path: Path) -> None:
    """A sound that is too long is refused; then others are read."""
    with encoding(*write_hearing(tmp_path), longest=2) as encoder:
        encoder.wait()
        with pytest.raises(RequestError, match=r"3 seconds long, 2 is most") as caught:
            encoder.encode(wav(3 * 16_000), "audio")
        assert caught.value.code == "bad_medium"
        assert encoder.encode(wav(16_000), "audio").pieces


def test_its_size(tmp_path: Path) -> None:
    """The size of a medium is known from its head, and is that of its vectors and tokens."""
    for write, kind, media in (
        *((write, "image", (png(), png(84, 28, 1), png(300, 200))) for write in SEEING.values()),
        (write_hearing, "audio", (wav(), wav(1), wav(640 * 900))),
    ):
        model, projector = write(tmp_path)
        with encoding(model, projector) as encoder:
            encoder.wait()
            width = 4 * encoder.ready.width
            for medium in media:
                size = encoder.count(medium, kind)
                pieces = encoder.encode(medium, kind).pieces
                rows = [len(piece.tokens) + len(piece.vectors) // width for piece in pieces]
                assert size.rows == sum(rows)
                together = [len(each.vectors) // width for each in pieces if not each.is_causal]
                assert size.together == max(together, default=0)


@pytest.mark.parametrize("count", [1, 2, 159, 160, 320, 399, 400, 1599])
def test_short_sounds(tmp_path: Path, count: int) -> None:
    """A sound of less than 100 ms is read as if silence followed it, up to 100 ms."""
    with encoding(*write_hearing(tmp_path)) as encoder:
        encoder.wait()
        assert encoder.encode(wav(count), "audio") == encoder.encode(
            lengthened(wav(count), 1600), "audio"
        )
        with pytest.raises(RequestError, match="cannot be decoded"):
            encoder.encode(wav(0), "audio")


def test_a_sound_that_is_cut_off(tmp_path: Path) -> None:
    """It is refused with what is missing, unless its head tells no length, as of one streamed."""
    whole = wav(16_000)
    with encoding(*write_hearing(tmp_path)) as encoder:
        encoder.wait()
        with pytest.raises(RequestError, match="cut off: 29044 bytes of its sound are missing"):
            encoder.encode(whole[:3000], "audio")
        streamed = whole[:40] + b"\xff\xff\xff\xff" + whole[44:]
        assert encoder.encode(streamed, "audio") == encoder.encode(whole, "audio")


def lengthened(sound: bytes, count: int) -> bytes:
    """With silence behind it."""
    samples = sound[44:]
    return wav(count)[:44] + samples + bytes(2 * count - len(samples))


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
