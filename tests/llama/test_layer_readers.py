"""Drafters that read the model's hidden states (EAGLE-3, DFlash): the same tokens in fewer steps,
what they guess alone, nothing of others."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.guessing import SAMPLINGS, guess_alone, guesses_change_nothing
from tests.support.models import drafters
from tests.support.models.architectures import Model
from tests.support.models.heads import write_qwen35
from tests.support.sessions import Session, Truth, load, open_reader, prompt_of, soak
from worker import log
from worker.engine.drafts.blocks import BlockDrafter
from worker.engine.drafts.guesser import Drafting
from worker.engine.drafts.heads import HeadDrafter
from worker.engine.drafts.rounds import Rounds
from worker.engine.sequence import Sequence
from worker.errors import ModelLoadError
from worker.lifecycle.loading import load_backend, open_draft
from worker.lifecycle.prepared import prepare
from worker.llama.backend import LlamaBackend
from worker.llama.companion import LayerReader
from worker.model.config import load_config
from worker.model.drafts import load_draft_config
from worker.settings import Settings

Pair = tuple[Path, Path]
Known = tuple[int, ...]
# Kind -> architecture of the model, and what of its own the drafter has. A hybrid's states are cut.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "borrows": ("llama", {}),
    "own": ("qwen3", {"own": True}),
    "table": ("llama", {"table": True}),
    "hybrid": ("qwen35", {}),
    "blocks": ("llama", {"block": 6}),
    "blocks table": ("qwen3", {"table": True, "block": 4, "window": 40, "sections": True}),
    "blocks hybrid": ("qwen35", {"block": 4}),
}


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:  # pyright: ignore[reportUnusedFunction]
    log.configure("console")


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A model and its drafter; each kind in turn."""
    return write_pair(tmp_path_factory.mktemp("eagle"), request.param)


def write_pair(folder: Path, kind: str) -> Pair:
    """A model and its drafter."""
    architecture, options = KINDS[kind]
    target, blocks = folder / "target.gguf", "block" in options
    if architecture == "qwen35":
        write_qwen35(target, marked=blocks)
    else:
        noise = 0.9 if blocks else 1.2
        drafters.write_target(target, architecture=architecture, marked=blocks, noise=noise)
    write = drafters.write_dflash if blocks else drafters.write_eagle
    return target, write(folder / "draft.gguf", **options)


@pytest.mark.parametrize("session", [{}, {"unified": True}], indirect=True)
def test_it_saves_steps_and_changes_nothing(session: Session) -> None:
    """Common beginnings, an abort, and several streams, in either layout of the cells."""
    session.run_common_beginnings()
    drafted = sum(delta.drafted_tokens for delta in session.last.values())
    # A hybrid guesses only while one runs, and is right there.
    is_hybrid = not session.backend.shape.cuts_tails
    assert 5 < session.accepted < drafted + is_hybrid


@pytest.mark.parametrize("session", [{"num_cells": 256, "batch_size": 64}], indirect=True)
def test_all_at_random(session: Session) -> None:
    """Prompts, conversations, aborts, states that leave and come back, in a small cache whose
    layout changes."""
    soak(session, 5, 25)
    for i in range(4):
        session.add(f"s{i}", prompt_of(150 + i, 50), 50)
    session.run()
    assert session.accepted


@pytest.mark.parametrize("kind", ["greedy", "seeded", "grammar", "penalties", "banned"])
@pytest.mark.parametrize("drafting", [False, True])
def test_the_same_text(opened: tuple[LlamaBackend, LayerReader], kind: str, drafting: bool) -> None:
    """Tokens, texts and logprobs are those without a drafter, alone or beside the text."""
    backend, reader = opened
    backend.context.clear()
    reader.context.clear()
    guesses_change_nothing(backend, SAMPLINGS[kind], Drafting(drafting, heads=reader))


@pytest.fixture(scope="module")
def opened(pair: Pair) -> Generator[tuple[LlamaBackend, LayerReader]]:
    config = load_draft_config(pair[1], load_config(pair[0]))
    with load(pair[0], draft=config) as backend, open_reader(config, backend) as reader:
        yield backend, reader


def test_it_guesses_what_it_guesses_alone(
    pair: Pair, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happened before in its cells: neighbours, who left in the prompt or in the answer,
    wrong guesses, another request in the same slot."""
    made: dict[Known, list[int]] = {}
    config = load_draft_config(pair[1], load_config(pair[0]))
    kind = BlockDrafter if config.block_size else HeadDrafter
    guess: Any = kind.guess

    def noted(self: Rounds[Any, Any], asked: Iterable[Sequence], length: int, floor: float) -> None:
        asked = list(asked)
        assert isinstance(self, HeadDrafter)
        guess(self, asked, length, floor)
        for sequence in asked:
            assert sequence.draft is not None
            if sequence.draft.source == "model":
                known = tuple(sequence.tokens[: sequence.num_known].tolist())
                made[known] = list(sequence.draft.tokens)

    monkeypatch.setattr(kind, "guess", noted)
    session = Session(pair[0], truth, draft=pair[1], kept_bytes=0, batch_size=16)
    for turn in range(3):
        for i in range(6):
            session.add(f"r{turn}{i}", prompt_of(160 + 10 * turn + i, 10 + 9 * i), 40)
            session.step(3)
        session.abort(f"r{turn}{turn}")
        session.run()
        session.run_alone(prompt_of(190 + turn, 20))
    assert session.accepted > 5
    session.close()
    compared = 0
    with load(pair[0], draft=config, unified=True) as backend, open_reader(config, backend) as one:
        for known, tokens in made.items():
            expected = guess_alone(backend, one, known, len(tokens))
            assert tokens[: len(expected)] == expected
            compared += len(expected)
    assert compared > 30


@pytest.mark.parametrize("cells", [512, 8192])
def test_the_plan_counts_it(pair: Pair, cells: int) -> None:
    """Weights, cells, compute buffers, what lends the embeddings, and states that wait."""
    settings = Settings(
        draft_model=str(pair[1]), ctx_size=cells, parallel=4, threads=1, device=("none",)
    )
    prepared = prepare(pair[0], settings)
    with load_backend(pair[0], settings, prepared) as backend:
        reader = open_draft(settings, prepared, backend)
        assert isinstance(reader, LayerReader)
        with reader:
            measured = sum(nbytes for _, nbytes in reader.buffers)
            waiting = 4 * reader.max_waiting * reader.fed.shape[1]
            read = 4 * len(reader.model_hidden_state(1)[0]) * 2 * settings.batch_size
    least = measured + waiting
    assert least <= prepared.plan.draft_bytes <= 2 * (least + read)


@pytest.mark.parametrize("make", [drafters.eagle, drafters.dflash])
def test_values_that_are_no_numbers(
    make: Callable[[], Model], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A drafter that computes NaN is put aside with a line in the log, and texts go on."""
    target = drafters.write_target(tmp_path / "target.gguf")
    model = make()
    tensor = model.gguf.tensor("blk.0.ffn_down.weight")
    tensor.data = np.full(len(tensor.data) // 4, np.nan, "<f4").tobytes()
    truth = Truth(target)
    session = Session(target, truth, draft=model.gguf.write(tmp_path / "draft.gguf"))
    session.add("a", prompt_of(1, 30), 40)
    session.run()
    assert not session.accepted
    told = capsys.readouterr().err
    assert told.count("drafting failed and is off from now on") == 1
    assert "no numbers" in told
    session.close()
    truth.backend.close()


@pytest.mark.parametrize("make", [drafters.eagle, drafters.dflash])
def test_a_table_that_leads_out_of_the_vocabulary(
    make: Callable[..., Model], tmp_path: Path
) -> None:
    """ggml would write there, so the drafter is refused when it is loaded."""
    target = drafters.write_target(tmp_path / "target.gguf")
    model = make(table=True)
    table = model.gguf.tensor("d2t")
    table.data = (drafters.OWN + 1).astype("<i8").tobytes()
    config = load_draft_config(model.gguf.write(tmp_path / "e.gguf"), load_config(target))
    refused = pytest.raises(ModelLoadError, match="not in its vocabulary")
    with load(target, draft=config) as backend, refused:
        open_reader(config, backend)
