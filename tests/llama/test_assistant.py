"""A Gemma 4 assistant, which looks at the model's own cells: the same tokens in fewer steps, what
it guesses alone, nothing of others."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from pathlib import Path

import numpy as np
import pytest

from tests.support.guessing import SAMPLINGS, guesses_change_nothing
from tests.support.models import drafters
from tests.support.sessions import (
    Session,
    Truth,
    load,
    open_assistant,
    prompt_of,
    soak,
)
from worker import log
from worker.engine.drafts.assistant import AssistantDrafter
from worker.engine.drafts.guesser import Drafting
from worker.engine.sequence import Sequence
from worker.lifecycle.loading import load_backend, open_draft
from worker.lifecycle.prepared import prepare
from worker.llama.backend import LlamaBackend
from worker.llama.companion import Assistant
from worker.model.config import load_config
from worker.model.drafts import load_draft_config
from worker.settings import Settings

Pair = tuple[Path, Path]
Known = tuple[int, ...]


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:  # pyright: ignore[reportUnusedFunction]
    log.configure("console")


@pytest.fixture(scope="module", params=[0, 2], ids=["own", "shared"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A model, all of whose layers have cells or only the first two, and its assistant."""
    folder = tmp_path_factory.mktemp("assistant")
    target = drafters.write_gemma4(folder / "target.gguf", shared=request.param)
    return target, drafters.write_assistant(folder / "assistant.gguf")


@pytest.mark.parametrize("session", [{}, {"unified": True}], indirect=True)
def test_it_saves_steps_and_changes_nothing(session: Session) -> None:
    """Common beginnings, an abort, and several streams, in either layout of the cells."""
    session.run_common_beginnings()
    drafted = sum(delta.drafted_tokens for delta in session.last.values())
    assert 5 < session.accepted < drafted


@pytest.mark.parametrize("session", [{"num_cells": 256, "batch_size": 64}], indirect=True)
def test_all_at_random(session: Session) -> None:
    """Prompts, conversations, aborts, states that leave and come back, in a small cache."""
    soak(session, 5, 25)
    assert session.accepted


def test_it_goes_on_in_another_layout(session: Session) -> None:
    """The cells at which it looks are made anew, and it with them."""
    changes = session.count_changes()
    session.add("long", prompt_of(1, 300), 20)
    session.run()
    assert changes == [True]
    assert session.last["long"].accepted_tokens
    for i in range(4):
        session.add(f"s{i}", prompt_of(150 + i, 30), 50)
    session.run()
    assert changes == [True, False]
    assert sum(session.last[f"s{i}"].accepted_tokens for i in range(4)) > 20


@pytest.mark.parametrize("kind", ["greedy", "seeded", "grammar", "penalties", "banned"])
@pytest.mark.parametrize("drafting", [False, True])
def test_the_same_text(opened: tuple[LlamaBackend, Assistant], kind: str, drafting: bool) -> None:
    """Tokens, texts and logprobs are those without an assistant, alone or beside the text."""
    backend, assistant = opened
    backend.context.clear()
    guesses_change_nothing(backend, SAMPLINGS[kind], Drafting(drafting, assistant=assistant))


@pytest.fixture(scope="module")
def opened(pair: Pair) -> Generator[tuple[LlamaBackend, Assistant]]:
    config = load_draft_config(pair[1], load_config(pair[0]))
    with load(pair[0], draft=config) as backend, open_assistant(config, backend) as assistant:
        yield backend, assistant


def guess_alone(backend: LlamaBackend, assistant: Assistant, known: Known, count: int) -> list[int]:
    """What the assistant guesses when nobody else was there, up to a near-tie."""
    backend.context.clear()
    backend.batch.clear()
    backend.batch.add(np.array(known[:-1], np.int32), 0, 0)
    backend.batch.outputs[backend.batch.size - 1] = 1
    backend.decode()
    (state,) = assistant.model_hidden_state(0, len(known) - 1)
    tokens = list[int]()
    for _ in range(count):
        assistant.batch.clear()
        assistant.batch.add_one([known[-1], *tokens][-1], len(known) - 1, 0)
        assistant.fed[0] = state
        assistant.decode()
        second, best = np.argsort(assistant.logits(0))[-2:]
        if assistant.logits(0)[best] - assistant.logits(0)[second] < 0.01:
            break
        state = assistant.hidden_state(0).copy()
        tokens.append(int(best))
    return tokens


def test_it_guesses_what_it_guesses_alone(
    pair: Pair, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the cells hold of neighbours, of who left in the prompt or in the answer, and
    whatever was guessed wrong."""
    made: dict[Known, list[int]] = {}
    guess = AssistantDrafter.guess

    def noted(self: AssistantDrafter, asked: Iterable[Sequence], length: int, floor: float) -> None:
        asked = list(asked)
        guess(self, asked, length, floor)
        for sequence in asked:
            assert sequence.draft is not None
            assert sequence.draft.source == "model"
            known = tuple(sequence.tokens[: sequence.num_known].tolist())
            made[known] = list(sequence.draft.tokens)

    monkeypatch.setattr(AssistantDrafter, "guess", noted)
    session = Session(pair[0], truth, draft=pair[1], kept_bytes=0, batch_size=16)
    for turn in range(3):
        for i in range(6):
            session.add(f"r{turn}{i}", prompt_of(160 + 10 * turn + i, 10 + 9 * i), 40)
            session.step(3)
        session.abort(f"r{turn}{turn}")
        session.run()
    assert session.accepted > 5
    session.close()
    config = load_draft_config(pair[1], load_config(pair[0]))
    compared = 0
    with (
        load(pair[0], draft=config, unified=True) as backend,
        open_assistant(config, backend) as assistant,
    ):
        for known, tokens in made.items():
            expected = guess_alone(backend, assistant, known, len(tokens))
            assert tokens[: len(expected)] == expected
            compared += len(expected)
    assert compared > 30


@pytest.mark.parametrize("cells", [512, 8192])
def test_the_plan_counts_it(pair: Pair, cells: int) -> None:
    """Weights, compute buffers and states that wait; it has no cells."""
    settings = Settings(
        draft_model=str(pair[1]), ctx_size=cells, parallel=4, threads=1, device=("none",)
    )
    prepared = prepare(pair[0], settings)
    with load_backend(pair[0], settings, prepared) as backend:
        assistant = open_draft(settings, prepared, backend)
        assert isinstance(assistant, Assistant)
        with assistant:
            assert not assistant.context.residency.kv_buffers
            measured = sum(nbytes for _, nbytes in assistant.buffers)
    assert measured <= prepared.plan.draft_bytes <= 2 * measured


def test_values_that_are_no_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An assistant that computes NaN is put aside with a line in the log, and texts go on."""
    target = drafters.write_gemma4(tmp_path / "target.gguf")
    model = drafters.assistant()
    tensor = model.gguf.tensor("blk.0.ffn_down.weight")
    tensor.data = np.full(len(tensor.data) // 4, np.nan, "<f4").tobytes()
    truth = Truth(target)
    session = Session(target, truth, draft=model.gguf.write(tmp_path / "assistant.gguf"))
    session.add("a", prompt_of(1, 30), 40)
    session.run()
    assert not session.accepted
    told = capsys.readouterr().err
    assert told.count("drafting failed and is off from now on") == 1
    assert "no numbers" in told
    session.close()
    truth.backend.close()


def test_a_model_whose_assistant_is_gone(pair: Pair) -> None:
    """Its cells get another layout without it."""
    config = load_draft_config(pair[1], load_config(pair[0]))
    with load(pair[0], draft=config) as backend:
        open_assistant(config, backend).close()
        backend.arrange(unified=True, slots=())
        assert backend.unified
