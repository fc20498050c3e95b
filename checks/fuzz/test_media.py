"""Whatever is done to a picture or a sound: an answer or a 400, and the next one is as before."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from checks.fuzz.media import PICTURES, SOUNDS, damaged
from tests.api.media.asked import CHAT, Body, chat, picture, said, spelled, user, words
from tests.support.models.projectors import write_hearing, write_llava
from tests.support.programs.processes import serving

_COUNT = 120  # of each kind of media


def sound(data: bytes) -> Body:
    """As a part of a chat."""
    return {"type": "input_audio", "input_audio": {"data": spelled(data)}}


@pytest.mark.mtmd
@pytest.mark.parametrize(
    ("write", "formats", "part"), [(write_llava, PICTURES, picture), (write_hearing, SOUNDS, sound)]
)
def test_damaged_media(
    tmp_path: Path,
    write: Callable[[Path], tuple[Path, Path]],
    formats: dict[str, Callable[[], bytes]],
    part: Callable[[bytes], Body],
) -> None:
    """Some at a time, beside a text; whole ones of all formats are read before and after."""
    model, _ = write(tmp_path)
    beside = chat(user(words("hello")), max_tokens=40, ignore_eos=True)
    whole = {name: make() for name, make in formats.items()}
    with (
        serving("--model", model, "--ctx-size", "4096", "-np", "4") as server,
        ThreadPoolExecutor(4) as pool,
    ):

        def answers() -> list[str]:
            bodies = [beside, *(chat(user(part(data), words("?"))) for data in whole.values())]
            return [said(server, body) for body in bodies]

        def outcome(number: int) -> str:
            """What is wrong with the answer to a damaged one, or nothing."""
            name = list(whole)[number % len(whole)]
            body = chat(user(part(damaged(whole[name], number)), words("?")))
            reply = server.post(body, CHAT)
            is_right = reply.status_code in (200, 400)
            return "" if is_right else f"{name} {number}: {reply.status_code} {reply.text}"

        expected = answers()
        stream = pool.submit(said, server, beside)
        assert [told for told in pool.map(outcome, range(_COUNT)) if told] == []
        assert stream.result() == expected[0]
        assert answers() == expected
        assert server.process.poll() is None
