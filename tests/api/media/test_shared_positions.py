"""Pictures whose vectors share positions, as Qwen-VL's do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.api.media.asked import agree, chat, picture, told, user, words
from tests.support.models.projectors import png, write_qwen2vl
from tests.support.programs.processes import serving

pytestmark = pytest.mark.mtmd


def test_beside_each_other(tmp_path: Path) -> None:
    """What follows such a picture stays in its cells: nobody is warned, and answers are the same
    where its slot moves, or the layout of the cells changes for a larger one."""
    model, _ = write_qwen2vl(tmp_path)
    small, large = picture(png(84, 84, 2)), picture(png(420, 280, 1))
    asked = [(small, "what?", 60), (small, "what is it?", 60), (small, "why?", 8), (large, "?", 8)]
    bodies = [
        chat(user(part, words(text)), max_tokens=count, ignore_eos=True)
        for part, text, count in asked
    ]
    with serving("--model", model, "-c", "2048", "-np", "1") as server:
        alone = [told(server, body) for body in bodies]
    with (
        serving("--model", model, "-c", "2048", "-np", "4") as server,
        ThreadPoolExecutor() as pool,
    ):
        for _ in range(2):
            for answer, expected in zip(
                pool.map(partial(told, server), bodies), alone, strict=True
            ):
                assert agree(answer, expected)
        lines = "\n".join(server.lines)
    assert "a state has" not in lines
