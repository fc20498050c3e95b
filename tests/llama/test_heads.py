"""Heads in the model's file: the same tokens, what they guess alone, and nothing of others."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.support.guessing import SAMPLINGS, guesses_change_nothing
from tests.support.models.heads import OTHERS, WRITERS
from tests.support.sessions import Session, Truth, load, prompt_of, soak
from worker import log
from worker.engine.drafts.guesser import Drafting
from worker.engine.drafts.heads import HeadDrafter
from worker.engine.drafts.rounds import Rounds
from worker.engine.sequence import Sequence
from worker.errors import DoesNotFitError
from worker.lifecycle.devices import Devices
from worker.lifecycle.loading import load_backend, open_draft
from worker.lifecycle.prepared import Fitting, memory_with, prepare
from worker.lifecycle.worker import Worker
from worker.llama import hidden_states
from worker.llama.backend import LlamaBackend
from worker.llama.companion import Heads
from worker.model.config import load_config
from worker.settings import Settings

Known = tuple[int, ...]
PRINTED = 30_000  # llama.cpp prints MiB with two decimals


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:  # pyright: ignore[reportUnusedFunction]
    log.configure("console")


@pytest.fixture(scope="module", params=sorted(WRITERS))
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose heads are right more often than not; each kind in turn."""
    return WRITERS[request.param](tmp_path_factory.mktemp("heads") / f"{request.param}.gguf")


@pytest.fixture(scope="module")
def truth(path: Path) -> Generator[Truth]:
    """What each request gets alone, without heads."""
    truth = Truth(path)
    yield truth
    truth.backend.close()


@pytest.fixture
def session(path: Path, truth: Truth, request: pytest.FixtureRequest) -> Generator[Session]:
    """A session with heads; the test's parameter has its options."""
    options: dict[str, Any] = getattr(request, "param", {})
    session = Session(path, truth, heads=True, **options)
    yield session
    session.close()


@pytest.mark.parametrize("session", [{}, {"unified": True}], indirect=True)
def test_they_save_steps_and_change_nothing(session: Session) -> None:
    """Common beginnings, an abort, and several streams, in either layout of the cells."""
    session.run_common_beginnings()
    drafted = sum(delta.drafted_tokens for delta in session.last.values())
    assert 10 < session.accepted < drafted


@pytest.mark.parametrize("session", [{"num_cells": 256, "batch_size": 64}], indirect=True)
def test_who_is_put_back_goes_on(session: Session) -> None:
    """Where cells run out, sequences wait and come back, with or without their state."""
    for i in range(5):
        session.add(f"r{i}", prompt_of(150 + i, 50), 50)
    session.run()
    session.run_alone(prompt_of(156, 50))
    assert session.num_put_back
    assert session.accepted


@pytest.mark.parametrize("session", [{"num_cells": 256, "num_slots": 2}], indirect=True)
def test_all_at_random(session: Session) -> None:
    """Random prompts, conversations, common beginnings and aborts, in a small cache."""
    soak(session, 5, 25)
    assert session.accepted


@pytest.mark.parametrize("session", [{"drafting": True, "num_cells": 2048}], indirect=True)
def test_beside_guesses_from_the_text(session: Session) -> None:
    """Both guess; wrong guesses of either leave nothing behind."""
    line = tuple(range(20, 60))
    session.add("a", line + line[:7], 60)
    session.add("b", prompt_of(131, 30), 40)
    session.run()
    assert session.accepted


@pytest.fixture(scope="module")
def pair(path: Path) -> Generator[tuple[LlamaBackend, Heads]]:
    with load(path, heads=True) as backend, Heads(backend) as heads:
        yield backend, heads


@pytest.mark.parametrize("kind", SAMPLINGS)
@pytest.mark.parametrize("drafting", [False, True])
def test_the_same_text(pair: tuple[LlamaBackend, Heads], kind: str, drafting: bool) -> None:
    """Tokens, texts and logprobs are those without heads, alone or beside the text."""
    backend, heads = pair
    backend.context.clear()
    heads.context.clear()
    guesses_change_nothing(backend, SAMPLINGS[kind], Drafting(drafting, heads=heads))


class Alone:
    """What heads guess when nobody else was there: everything is read from the beginning."""

    def __init__(self, path: Path) -> None:
        self.backend = load(path, heads=True, unified=True)
        self.heads = Heads(self.backend)

    def guess(self, known: Known, count: int) -> tuple[list[int], list[float]]:
        """So many guessed tokens, and by how much each was likelier than the next one."""
        backend, heads = self.backend, self.heads
        backend.context.clear()
        heads.context.clear()
        backend.batch.clear()
        backend.batch.add(np.array(known[:-1], np.int32), 0, 0)
        backend.batch.outputs[backend.batch.size - 1] = 1
        backend.decode()
        heads.fed[0] = 0
        heads.fed[1 : len(known)] = heads.model_hidden_state(len(known) - 1)
        last = heads.fed[len(known) - 1].copy()
        heads.batch.clear()
        heads.batch.add(np.array(known[:-1], np.int32), 0, 0)
        heads.decode()
        tokens, margins, token = list[int](), list[float](), known[-1]
        for position in range(len(known) - 1, len(known) - 1 + count):
            heads.batch.clear()
            heads.batch.add_one(token, position, 0)
            heads.fed[0] = last
            heads.decode()
            best = np.argsort(heads.logits(0))[-2:]
            margins.append(float(heads.logits(0)[best[1]] - heads.logits(0)[best[0]]))
            last, token = heads.hidden_state(0).copy(), int(best[1])
            tokens.append(token)
        return tokens, margins

    def close(self) -> None:
        self.heads.close()
        self.backend.close()


@pytest.mark.parametrize("name", OTHERS)
def test_other_architectures(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tokens in fewer steps, and guesses as alone, for all that the table names."""
    path = OTHERS[name](tmp_path / "m.gguf")
    truth = Truth(path)
    test_they_guess_what_they_guess_alone(path, truth, monkeypatch)
    truth.backend.close()


def test_they_guess_what_they_guess_alone(
    path: Path, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happened before in the heads' cells: neighbours, who left in the prompt or in the
    answer, wrong guesses, pauses, another request in the same slot (llama.cpp #27296)."""
    made: dict[Known, list[int]] = {}
    guess = HeadDrafter.guess

    def noted(self: Rounds[Any, Any], asked: Iterable[Sequence], length: int, floor: float) -> None:
        asked = list(asked)
        assert isinstance(self, HeadDrafter)
        guess(self, asked, length, floor)
        for sequence in asked:
            assert sequence.draft is not None
            if sequence.draft.source == "model":
                known = tuple(sequence.tokens[: sequence.num_known].tolist())
                made[known] = list(sequence.draft.tokens)

    monkeypatch.setattr(HeadDrafter, "guess", noted)
    session = Session(path, truth, heads=True, kept_bytes=0, batch_size=16)
    for turn in range(3):
        for i in range(6):
            session.add(f"r{turn}{i}", prompt_of(160 + 10 * turn + i, 10 + 9 * i), 40)
            session.step(3)
        session.abort(f"r{turn}{turn}")
        session.step(5)
        session.abort(f"r{turn}{turn + 1}")
        session.run()
        session.run_alone(prompt_of(190 + turn, 20))
    assert session.accepted > 10
    session.close()
    alone = Alone(path)
    compared = 0
    for known, tokens in made.items():
        expected, margins = alone.guess(known, len(tokens))
        clear = next((i for i, margin in enumerate(margins) if margin < 0.01), len(tokens))
        assert tokens[:clear] == expected[:clear]
        compared += clear
    alone.close()
    assert compared > 30


@pytest.mark.parametrize("cells", [512, 8192])
def test_the_plan_counts_them(path: Path, cells: int) -> None:
    """Cells and compute buffer of the heads, states that wait, and a hybrid's spare ones."""
    settings = Settings(draft="mtp", ctx_size=cells, parallel=4, threads=1, device=("none",))
    prepared = prepare(path, settings)
    with load_backend(path, settings, prepared) as backend:
        heads = open_draft(settings, prepared, backend)
        assert isinstance(heads, Heads)
        with heads:
            measured = sum(nbytes for _, nbytes in heads.buffers)
            waiting = 4 * heads.max_waiting * heads.fed.shape[1]
            states = sum(nbytes for _, nbytes in backend.context.residency.kv_buffers)
    plan = prepared.plan
    assert measured + waiting <= plan.draft_bytes <= 2 * (measured + waiting)
    assert plan.kv_bytes + plan.recurrent_bytes == pytest.approx(states, abs=PRINTED)


def test_a_build_without_the_calls(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where llama.cpp gives no hidden states, heads are not loaded, and one sentence says why."""
    monkeypatch.setattr(hidden_states, "missing", "no such symbol")
    forgets = load_config(path).recurrent is None
    left_of = "auto" if forgets else "none"
    for asked, left in (("mtp", "none"), ("both", left_of), (None, left_of)):
        prepared = prepare(path, Settings(draft=asked, ctx_size=512))
        assert (prepared.guesses, prepared.uses_heads) == (left, False)
        assert prepared.plan.draft_bytes == 0
        assert "gives no hidden states: no such symbol" in capsys.readouterr().err


@pytest.mark.parametrize("asked", [None, "both"])
def test_they_do_not_fit(path: Path, asked: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads that nobody named and that cannot be opened are left out; else the worker fails."""

    def refuse(_: LlamaBackend) -> Heads:
        raise DoesNotFitError("There is no room.")

    async def load() -> None:
        worker = Worker(Settings(draft=asked, ctx_size=512, threads=1), path)
        beside: asyncio.Future[None] = asyncio.Future()
        beside.set_result(None)
        await worker.load(beside)
        if asked is None:
            assert worker.loaded.guesses == "auto"
        else:
            assert str(worker.error) == "There is no room."
        await worker.drain()
        worker.close()

    monkeypatch.setattr("worker.lifecycle.loading.Heads", refuse)
    asyncio.run(load())


def test_they_guess_by_default(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Heads that nobody named are used and planned, unless the context would be shorter for it."""
    config, settings = load_config(path), Settings(parallel=4)
    free = memory_with(Devices())
    fitted = Fitting(config, settings, free).fit()
    assert (fitted.settings.guesses, fitted.settings.uses_heads) == ("both", True)
    assert fitted.plan.draft_bytes
    fitted.tell()
    assert not capsys.readouterr().err

    small = msgspec.structs.replace(free, available=fitted.plan.total_bytes)
    fitted = Fitting(config, settings, small).fit()
    assert (fitted.settings.guesses, fitted.settings.uses_heads) == (
        "auto" if config.recurrent is None else "none", False
    )  # fmt: skip
    assert not fitted.plan.draft_bytes
    fitted.tell()
    assert "they would take memory that the context needs" in capsys.readouterr().err
    asked = Settings(parallel=4, draft="both")
    assert Fitting(config, asked, small).fit().settings == asked
