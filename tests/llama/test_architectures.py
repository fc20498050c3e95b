"""Every kind of cache, through the engine: no tokens depend on neighbours or on reused prefixes.

The tokens that a request gets alone, with nothing in the cache, are the truth. `Truth` computes
them without the engine: first the whole prompt, then token by token.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.models.architectures import VOCABULARY, WINDOW, WRITERS
from tests.support.sessions import PREFIX, Session, Truth, prompt_of
from worker import log
from worker.engine.backend import Kernels
from worker.engine.plan import StepPlan
from worker.errors import ModelFileError, ModelLoadError, UsageError
from worker.llama.companion import DraftModel
from worker.llama.context import ContextOptions
from worker.llama.library import native
from worker.llama.weights import LoadOptions
from worker.model.config import load_config

RECURRENT = {"mamba", "rwkv7"}
HYBRID = {"lfm2", "lfm2-window", "granitehybrid"}
WINDOWED = {"gemma3", "gemma3-array", "lfm2-window"}
WHOLE_ONLY = RECURRENT | HYBRID
FORGETS = set(WRITERS) - WHOLE_ONLY | {"lfm2"}  # it keeps the states before the last rows
Open = Callable[..., Session]


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:  # pyright: ignore[reportUnusedFunction]
    """llama.cpp's own lines cost more than the models here."""
    log.configure("console")


@pytest.fixture(scope="module", params=sorted(WRITERS))
def name(request: pytest.FixtureRequest) -> str:
    """Each architecture in turn."""
    return request.param


@pytest.fixture(scope="module")
def path(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The architecture's file."""
    return WRITERS[name](tmp_path_factory.mktemp("architectures") / f"{name}.gguf")


@pytest.fixture(scope="module")
def truth(path: Path) -> Generator[Truth]:
    """What each request gets alone."""
    truth = Truth(path)
    yield truth
    truth.backend.close()


@pytest.fixture
def start(path: Path, truth: Truth) -> Generator[Open]:
    """Opens sessions, closes them in the end."""
    sessions: list[Session] = []

    def opened(**options: Any) -> Session:
        sessions.append(Session(path, truth, **options))
        return sessions[-1]

    yield opened
    for session in sessions:
        session.close()


def test_it_is_what_its_name_says(name: str, path: Path, truth: Truth) -> None:
    """Our checks accept the file, and llama.cpp sees the kind of cache that it stands for."""
    config = load_config(path)
    handle = truth.backend.weights.handle
    assert config.kind == "decoder"
    assert bool(native.llama_model_is_recurrent(handle)) == (name in RECURRENT)
    assert bool(native.llama_model_is_hybrid(handle)) == (name in HYBRID)
    assert config.sliding_window == native.llama_model_n_swa(handle)
    assert bool(config.sliding_window) == (name in WINDOWED)
    assert truth.backend.shape.cuts_tails == (name not in WHOLE_ONLY)


def test_every_token_in_reach_matters(name: str, truth: Truth) -> None:
    """Another token at the edge of a window changes what follows, so a wrong cache would show."""
    prompt = prompt_of(1, 40)
    for place in (len(prompt) - WINDOW, len(prompt) - 3):
        other = (*prompt[:place], 3 + (prompt[place] + 50) % 300, *prompt[place + 1 :])
        assert truth(other, 24) != truth(prompt, 24)
    assert len(set(truth(prompt, 24))) > 8


def test_alone(start: Open) -> None:
    """A lone request in a fresh backend gets the truth."""
    for seed, length in ((2, 1), (3, 20), (4, 70)):
        session = start()
        session.add("a", prompt_of(seed, length))
        session.run()


def test_together(start: Open) -> None:
    """Requests of different lengths in one batch each get what they get alone."""
    session = start(num_slots=4)
    for i in range(7):
        session.add(f"r{i}", prompt_of(10 + i, 3 + 11 * i))
        session.step(i % 3)
    session.run()


@pytest.mark.parametrize("unified", [False, True])
def test_eight_that_come_at_once(name: str, start: Open, *, unified: bool) -> None:
    """Eight prompts, longer than a window, are read in common steps, and again when these end.

    In the unified layout they take the place of cells that the others' windows have passed.
    """
    session = start(num_cells=1024 if unified else 8 * 256, num_slots=8, unified=unified)
    shared: list[int] = []
    schedule = session.engine.scheduler.schedule

    def counted(now: float) -> StepPlan:
        plan = schedule(now)
        shared.append(sum(count > 1 for _, count in plan.runs))
        return plan

    session.engine.scheduler.schedule = counted
    for wave in range(2):
        for i in range(8):
            prompt = prompt_of(800 + 8 * wave + i, 40 + (5 * i + wave) % 23)
            session.add(f"r{wave}{i}", prompt, 3 * WINDOW)
        session.run()
    alone = unified and name == "lfm2-window"  # llama.cpp could lose cells there
    assert max(shared) == 1 if alone else max(shared) > 4


def test_in_chunks(start: Open) -> None:
    """Prompts that are read in many steps, and steps computed in several parts, change nothing."""
    session = start(num_slots=3, batch_size=16, ubatch_size=5)
    for i in range(6):
        session.add(f"r{i}", prompt_of(10 + i, 3 + 11 * i))
        session.add(f"s{i}", PREFIX + prompt_of(30 + i, 9))
        session.step(2 * i)
    session.run()


def test_what_must_come(start: Open, truth: Truth) -> None:
    """Tokens that are known before their rows are computed, several at once, change nothing."""
    for unified in (False, True):
        session, draw = start(batch_size=16, unified=unified), random.Random(0)

        def ahead(
            sampler: Any, session: Session = session, draw: random.Random = draw
        ) -> list[int]:
            running = session.engine.scheduler.running
            sequence = next(each for each in running if each.sampler is sampler)
            said = truth(tuple(sequence.prompt.tokens), 30)
            return list(said[sequence.num_sampled :][: draw.randrange(9)])

        session.backend.ahead = ahead
        for i in range(6):
            session.add(f"r{i}", prompt_of(10 + i, 3 + 11 * i), 30)
            session.step(i)
        session.run()
        assert session.engine.snapshot.num_steps < 60


def test_a_conversation_goes_on_where_it_was(start: Open) -> None:
    """A prompt that extends a finished sequence computes only what is new."""
    session = start()
    prompt = prompt_of(3, 20)
    for turn in range(4):
        session.add(f"t{turn}", prompt)
        session.run(f"t{turn}")
        # The last sampled token was never computed.
        known = len(session.reply(f"t{turn - 1}")) - 1 if turn else 0
        assert session.cached(f"t{turn}") == known
        prompt = session.reply(f"t{turn}") + prompt_of(40 + turn, 7)


def test_a_finished_prefix(name: str, start: Open) -> None:
    """A prompt that begins like a finished one continues from that beginning.

    Where a state cannot be cut, from the last place where one was kept: near the end of a prompt.
    """
    session = start()
    first = PREFIX + prompt_of(50, 3)
    session.add("a", first)
    session.run()
    kept = len(first) - 4
    cases = {"begins alike": (PREFIX + prompt_of(51, 9), len(PREFIX), kept),
             "same": (first, len(first), kept),
             "shorter": (PREFIX[:30], 29, 0)}  # fmt: skip
    for case, (prompt, common, whole) in cases.items():
        session.add(case, prompt)
        session.run()
        found = session.cached(case)
        if name in WHOLE_ONLY:
            assert found == whole, case
        elif name in WINDOWED:
            assert found >= whole, case
        else:
            assert found == common, case


def test_a_running_prefix(name: str, start: Open) -> None:
    """Prompts that begin alike share while they run, whichever is ahead."""
    session = start(num_slots=6, batch_size=16)
    session.add("a", PREFIX + prompt_of(60, 30), 30)
    session.step(2)
    for i in range(3):
        session.add(f"b{i}", PREFIX + prompt_of(61 + i, 5 + i), 30)
    session.step(12)
    session.add("c", PREFIX[:25] + prompt_of(66, 4))
    session.run()
    shared = {"b0": 48, "b1": 48, "b2": 48, "c": 25}
    for each, common in shared.items():
        # `c` needs what all others have left behind.
        gone = each == "c" and name in WHOLE_ONLY
        assert session.cached(each) == (0 if gone else common), each


def test_a_prefix_behind_the_window(name: str, start: Open) -> None:
    """A prefix is shared only while its last window is there; later tokens may have replaced it."""
    session = start(num_cells=256, num_slots=6, unified=True, kept_bytes=0)
    session.add("first", prompt_of(70, 20))
    session.run()
    session.add("long", PREFIX + prompt_of(71, 60))
    session.run()
    context, cells = session.backend.context, session.engine.scheduler.cells
    lost = 0
    for i in range(6):  # the others take the place of what nobody needs
        session.add(f"other{i}", prompt_of(72 + i, 25))
        session.run()
        lost += any(slot.length and context.span(slot.index)[0] > 0 for slot in cells.cached)
        session.add(f"again{i}", PREFIX + prompt_of(90 + i, 5))
        session.run()
    if name not in WHOLE_ONLY:
        assert bool(lost) == (name in WINDOWED)


def test_aborts(name: str, start: Open) -> None:
    """A request that is aborted, in its prompt or its answer, changes nothing for the others."""
    session = start(num_slots=4, batch_size=16)
    for i in range(4):
        session.add(f"r{i}", PREFIX + prompt_of(100 + i, 10 + i), 20)
    session.step(2)
    session.abort("r0")
    session.step(14)
    session.abort("r2")
    session.add("again", PREFIX + prompt_of(100, 10))
    session.run()
    session.add("more", PREFIX + prompt_of(102, 12))
    session.run()


def test_what_was_computed_before_an_abort_counts(start: Open) -> None:
    """The state of a sequence that left in the middle of its prompt is continued, not repeated."""
    session = start(batch_size=16)
    prompt = prompt_of(110, 70)
    session.add("a", prompt)
    session.step(2)
    session.abort("a")
    (slot,) = session.engine.scheduler.cells.cached
    computed = slot.length
    assert 0 < computed < len(prompt)
    session.add("b", prompt)
    session.run()
    assert session.cached("b") == computed


def test_a_small_cache(name: str, start: Open) -> None:
    """Eviction and preemption do not change the tokens."""
    session = start(num_cells=256, num_slots=4, batch_size=64)
    for i in range(8):
        session.add(f"r{i}", PREFIX[: 6 * i] + prompt_of(120 + i, 60 - 5 * i), 50)
        session.step(3)
    session.run()
    # A recurrent state has room for every sequence.
    assert bool(session.num_put_back) == (name not in RECURRENT)


def test_drafts(name: str, start: Open) -> None:
    """Guesses that turn out wrong leave nothing behind; no guess where none can be dropped."""
    session = start(num_cells=2048, drafting=True)
    tail = (7, 9)
    # Whatever comes first after `tail`, the prompt has it there too.
    every = tuple(token for last in range(3, VOCABULARY) for token in (*tail, last))
    session.add("alone", every + prompt_of(129, 10) + tail, 6)
    session.run()
    session.add("a", every + prompt_of(130, 10) + tail, 6)
    session.add("b", prompt_of(131, 30), 20)
    session.run()
    session.add("more", session.reply("a") + prompt_of(132, 5), 6)
    session.run()
    drafted = sum(delta.drafted_tokens for delta in session.last.values())
    assert bool(drafted) == (name in FORGETS)


@pytest.mark.parametrize("unified", [False, True])
def test_rows_that_nobody_reads(name: str, start: Open, *, unified: bool) -> None:
    """Steps that are filled up change no token and no cell."""
    session = start(num_slots=4, unified=unified)
    session.backend.kernels = Kernels(block=4, fewest=3)
    added = session.count_padding()
    for i in range(3):
        session.add(f"c{i}", prompt_of(170 + i, 20 + i), 20)
    session.run()
    filled = name not in RECURRENT | HYBRID | WINDOWED
    assert bool(sum(added)) == filled


@pytest.mark.parametrize("unified", [False, True])
def test_draft_model(name: str, path: Path, start: Open, unified: bool) -> None:
    """A model that drafts for itself saves steps and changes no token: with common beginnings,
    an abort, and sequences that are put back. Not where a tail cannot be cut."""
    if name in WHOLE_ONLY:
        with pytest.raises(UsageError, match="cannot reject a draft token"):
            start(draft=path)
        with pytest.raises(ModelLoadError, match="cannot draft"):
            DraftModel(
                path,
                LoadOptions(n_gpu_layers=0, devices=()),
                ContextOptions(num_cells=512, num_slots=4),
            )
        return
    session = start(draft=path, unified=unified, num_cells=1024, batch_size=64)
    session.run_common_beginnings()
    assert session.accepted > 20
    small = start(draft=path, num_cells=256, batch_size=64)
    for i in range(5):
        small.add(f"r{i}", prompt_of(150 + i, 50), 50)
    small.run()
    assert small.num_put_back


def test_unequal_prompts_behind_a_window(tmp_path: Path) -> None:
    """Prompts of different lengths in one step do not cost each other cells inside the window."""
    path = WRITERS["lfm2-window"](tmp_path / "model.gguf")
    truth = Truth(path)
    session = Session(path, truth, num_cells=256, num_slots=12, batch_size=128, ubatch_size=128)
    draw = random.Random(7)
    with truth.backend, session.backend:
        for i in range(30):
            session.add(f"r{i}", prompt_of(700 + i, draw.randint(2, 90)), draw.randint(2, 20))
            session.step(draw.choice([0, 0, 0, 3, 8]))
        session.run()


def test_a_head_that_the_kernel_cannot_read(tmp_path: Path) -> None:
    """An RWKV7 head that is no multiple of 64 is refused: natively it reads past the end."""
    path = WRITERS["rwkv7"](tmp_path / "m.gguf")
    raw = path.read_bytes()
    at = raw.index(b"wkv.head_size") + len(b"wkv.head_size") + 4  # behind the value's type
    path.write_bytes(raw[:at] + (16).to_bytes(4, "little") + raw[at + 4 :])
    with pytest.raises(ModelFileError) as caught:
        load_config(path)
    assert caught.value.field == "rwkv7.wkv.head_size"


@pytest.mark.parametrize("unified", [False, True])
def test_making_way(name: str, start: Open, *, unified: bool) -> None:
    """Who makes way for a better priority, while it reads or writes, gets what it gets alone."""
    session = start(num_slots=2, unified=unified)
    for i in range(4):
        session.add(f"low{i}", prompt_of(900 + i, 30 + 9 * i), 24, priority=5)
        session.step(3 + 2 * i)
        session.add(f"high{i}", prompt_of(950 + i, 5 + 40 * i), 4)
        session.step(2)
    session.run()
    assert session.num_put_back >= 3
