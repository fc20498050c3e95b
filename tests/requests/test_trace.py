"""Why a prompt was read again: over thirty made cases, each with the one right reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pytest

from tests.requests.tracing import SPELLED, SYSTEM, Messages, Worker, long, render
from worker.cache.disk import Disk
from worker.cache.store import Store
from worker.engine.backend import Kernels
from worker.engine.request import Medium, Prompt
from worker.engine.sampling import SamplingParams
from worker.engine.sequence import Reuse
from worker.requests import trace as traces
from worker.requests.prompts import KnownPrompt, RecentPrompts, rejoins
from worker.requests.trace import CacheTrace, TracedPrompt

HYBRID: dict[str, Any] = {"cuts_tails": False}
WINDOW: dict[str, Any] = {"window": 8}
ASKED: Messages = [("system", SYSTEM), ("user", "What is the sea, and who lives in it?")]


def dated(stamp: str) -> Messages:
    return [("system", f"Now it is {stamp}. {SYSTEM}"), *ASKED[1:]]


def first_time() -> CacheTrace:
    return Worker().ask(long(1))


def first_time_beside_others() -> CacheTrace:
    worker = Worker()
    worker.ask(long(1))
    return worker.ask(long(1)[:5] + long(2))


def complete() -> CacheTrace:
    worker = Worker()
    worker.ask(long(1))
    return worker.ask(long(1))


def complete_by_memory() -> CacheTrace:
    worker = Worker()
    worker.ask(long(1))
    worker.forget_cells()
    return worker.ask(long(1))


def new_text() -> CacheTrace:
    worker = Worker()
    worker.chat(ASKED)
    said = [*ASKED, ("assistant", worker.answer), ("user", "And the lake?")]
    return worker.chat(said, render(ASKED) + worker.answer + "\n<user>And the lake?\n<assistant>")


def new_conversation() -> CacheTrace:
    worker = Worker()
    worker.chat(ASKED)
    return worker.chat([ASKED[0], ("user", "Name a bird that cannot fly at all.")])


def new_question_with_a_date() -> CacheTrace:
    worker = Worker()
    worker.chat([ASKED[0], ("user", "What was on 2024-05-01?")])
    return worker.chat([ASKED[0], ("user", "What was on 2023-11-12 in the north?")])


def changed_in_the_middle() -> CacheTrace:
    worker = Worker()
    worker.ask(long(1) + "one" + long(2))
    return worker.ask(long(1) + "two" + long(2))


def something_put_in() -> CacheTrace:
    worker = Worker()
    worker.ask(long(1) + long(2))
    return worker.ask(long(1) + "and then " + long(2))


def something_left_out() -> CacheTrace:
    worker = Worker()
    worker.ask(long(1) + long(3, 100) + long(2))
    return worker.ask(long(1) + long(2))


def message_changed() -> CacheTrace:
    worker = Worker()
    said = [*ASKED, ("assistant", "Fish."), ("user", "Tell me more of them, as much as you can.")]
    worker.chat(said)
    said[1] = ("user", "What is the lake, and who lives in it?")
    return worker.chat(said)


def date_changed(one: str, other: str) -> Callable[[], CacheTrace]:
    def case() -> CacheTrace:
        worker = Worker()
        worker.chat(dated(one))
        return worker.chat(dated(other))

    return case


def date_of_the_template() -> CacheTrace:
    worker = Worker()
    worker.chat(ASKED, render(ASKED, "<date>28 Nov 2026\n"))
    return worker.chat(ASKED, render(ASKED, "<date>29 Nov 2026\n"))


def date_in_a_result() -> CacheTrace:
    worker = Worker()
    rest = [("assistant", "I look. It is full of fish."), ("user", "Is it still so, and why?")]
    worker.chat([*ASKED, ("tool", "as of 10:15:02"), *rest])
    return worker.chat([*ASKED, ("tool", "as of 10:21:44"), *rest])


def date_in_a_plain_text() -> CacheTrace:
    worker = Worker()
    worker.ask("Log of 2026-11-28. " + long(1))
    return worker.ask("Log of 2026-11-29. " + long(1))


def template_drops_a_thought() -> CacheTrace:
    """The next question makes the template leave out what was thought before the last one."""
    worker = Worker()
    said = [*ASKED, ("assistant", "Fish live there, and whales.")]
    thoughts = {2: "whales are no fish but count"}
    shown = render([*said[:2], ("assistant", f"({thoughts[2]}){said[2][1]}"), ("user", "Why?")])
    worker.chat([*said, ("user", "Why?")], shown, thoughts=thoughts)
    last = [*said, ("user", "Why?"), ("assistant", "So."), ("user", "And the lake?")]
    return worker.chat(last, thoughts=thoughts)


def template_drops_the_newest_thought() -> CacheTrace:
    """Its client sent the reasoning back, and the template does not show it."""
    worker = Worker()
    worker.chat(ASKED, count=12)
    thought, rest = worker.answer[:8], worker.answer[8:]
    last = [*ASKED, ("assistant", f"It: {rest}"), ("user", "And the lake?")]
    return worker.chat(last, thoughts={2: thought})


def answer_changed() -> CacheTrace:
    worker = Worker()
    worker.chat(ASKED, count=30)
    trimmed = worker.answer[:3] + " ..."
    return worker.chat([*ASKED, ("assistant", trimmed), ("user", "And the lake?")])


def tools_changed() -> CacheTrace:
    worker = Worker()
    for given in (1, 2):
        tools = f"Tools: {long(given, 200)}\n"
        shown = render(ASKED[:1], opens=False) + tools + render(ASKED[1:])
        trace = worker.chat(ASKED, shown, given=given)
    return trace


def other_media() -> CacheTrace:
    worker, text = Worker(), tuple(long(1).encode())
    worker.ask((*text, *[-5] * 40, *text))
    return worker.ask((*text, *[-6] * 40, *text))


def other_adapter() -> CacheTrace:
    worker = Worker()
    worker.ask(long(1), key=b"a")
    return worker.ask(long(1), key=b"b")


def evicted() -> CacheTrace:
    worker = Worker(store_bytes=16_000, num_cells=1_000, num_slots=2)
    for seed in range(8):
        worker.ask(long(seed))
    return worker.ask(long(0))


def evicted_in_a_conversation() -> CacheTrace:
    worker = Worker(store_bytes=16_000, num_cells=1_000, num_slots=2)
    worker.ask(long(0))
    known = long(0) + worker.answer
    for seed in range(1, 8):
        worker.ask(long(seed))
    return worker.ask(known + "and what else?")


def cache_off() -> CacheTrace:
    worker = Worker(0, num_cells=1_000, num_slots=2)
    for seed in range(4):
        worker.ask(long(seed))
    return worker.ask(long(0))


def other_layout() -> CacheTrace:
    worker = Worker(0, num_cells=2_000, num_slots=4, streams=True)
    worker.ask(long(1))
    worker.ask(long(2, 900))  # more than a stream holds
    return worker.ask(long(1))


def after_sleep() -> CacheTrace:
    worker = Worker(0)
    worker.ask(long(1))
    worker.engine.empty()
    worker.forget_cells()
    return worker.ask(long(1))


def checkpoint(kind: dict[str, Any]) -> Callable[[], CacheTrace]:
    def case() -> CacheTrace:
        worker = Worker(num_cells=20_000, **kind)
        worker.ask(long(1, 3_000))
        worker.forget_cells()
        return worker.ask(long(1, 2_900) + "x")

    return case


def window() -> CacheTrace:
    worker = Worker(0, **WINDOW)
    worker.ask(long(1))
    worker.ask(long(2))  # whose rows take cells behind the window
    return worker.ask(long(1)[:300])


def in_use() -> CacheTrace:
    worker = Worker(0, **HYBRID, num_slots=4)
    worker.start(long(1), count=300)
    for _ in range(5):
        worker.step()
    name = worker.start(long(1, 300))
    return worker.finish(name)


def too_short() -> CacheTrace:
    worker = Worker(**HYBRID)
    worker.ask(long(1, 20) + long(2, 60))
    return worker.ask(long(1, 20) + long(3, 8))


def whole_pieces() -> CacheTrace:
    worker = Worker()
    worker.backend.kernels = Kernels(whole=128)
    worker.ask(long(1, 200) + long(2, 50))
    return worker.ask(long(1, 200) + "xyz", sampling=SamplingParams(seed=7))


def disk_blocks(folder: Path) -> CacheTrace:
    worker = Worker(store=disk_store(folder))
    worker.ask(long(1, 300))
    assert worker.store is not None
    worker.store.close(60)
    again = Worker(store=disk_store(folder))
    again.recent = worker.recent
    again.backend.now = worker.backend.now + 1
    return again.ask(long(1, 250) + "x")


def disk_store(folder: Path) -> Store:
    return Store(1 << 22, needs_rest=False, disk=Disk(folder, 1 << 24, b"model", 8))


def would_stall() -> CacheTrace:
    worker = Worker(num_cells=2_000, num_slots=2, max_stall=0.5)
    worker.backend.kernels = Kernels(cell_s=1.0)
    worker.ask(long(1))
    worker.forget_cells()
    worker.start(long(2), count=400)
    for _ in range(3):
        worker.step()
    return worker.finish(worker.start(long(1)))


def prompt_logprobs() -> CacheTrace:
    worker = Worker(max_outputs=512)
    worker.ask(long(1))
    return worker.ask(long(1), prompt_logprobs=0)


def never(*_: object) -> bool:
    """Nothing can be brought back."""
    return False


def unreadable() -> CacheTrace:
    worker = Worker()
    worker.ask(long(1))
    worker.forget_cells()
    worker.backend.restore = never  # pyright: ignore[reportAttributeAccessIssue]
    return worker.ask(long(1))


def media_in_cells_only() -> CacheTrace:
    """Media that take fewer positions than cells are not copied out of the cells."""
    recent, tokens = RecentPrompts(), np.arange(1, 101, dtype=np.int32)
    media = (Medium(10, np.zeros((40, 2), np.float32), 8),)
    reuse = Reuse(None, (0, ""), 0, True, tokens)
    prompts = [Prompt(tuple(tokens.tolist()), media=media) for _ in range(2)]
    recent.end(recent.begin("", prompts[0], None), reuse, 1.0, 2.0)
    mine = recent.begin("", prompts[1], None)
    return TracedPrompt(mine, reuse, 0, None, SPELLED).trace(recent, 3.0)


CASES: dict[str, list[Callable[..., CacheTrace]]] = {
    "first_time": [first_time, first_time_beside_others],
    "complete": [complete, complete_by_memory],
    "new_text": [new_text, new_conversation, new_question_with_a_date],
    "prompt_changed": [
        changed_in_the_middle, something_put_in, something_left_out, message_changed,
    ],
    "date_changed": [
        date_changed("2026-11-28", "2026-11-29"), date_changed("10:15 PM", "9:03 AM"),
        date_changed("Friday, 27 November 2026", "Saturday, 28 November 2026"),
        date_changed("November 27, 2026", "December 1, 2026"),
        date_changed("1795867200", "1795867305"),
        date_of_the_template, date_in_a_result, date_in_a_plain_text,
    ],
    "template_changed_earlier_turn": [
        template_drops_a_thought, template_drops_the_newest_thought,
    ],
    "answer_changed": [answer_changed],
    "tools_changed": [tools_changed],
    "other_media": [other_media],
    "other_adapter": [other_adapter],
    "evicted": [evicted, evicted_in_a_conversation],
    "cache_off": [cache_off],
    "other_layout": [other_layout, after_sleep],
    "checkpoint_only_at": [checkpoint(HYBRID), checkpoint({"window": 32})],
    "window": [window],
    "in_use": [in_use],
    "too_short": [too_short],
    "whole_pieces": [whole_pieces],
    "disk_blocks": [disk_blocks],
    "would_stall": [would_stall],
    "prompt_logprobs": [prompt_logprobs],
    "unreadable": [unreadable],
    "media_in_cells_only": [media_in_cells_only],
}  # fmt: skip
MADE = [(reason, case) for reason, found in CASES.items() for case in found]


@pytest.mark.parametrize(
    ("reason", "case"), MADE, ids=[f"{n}-{case.__name__}" for n, (_, case) in enumerate(MADE)]
)
def test_made_cases(reason: str, case: Callable[..., CacheTrace], tmp_path: Path) -> None:
    """Each has its reason, and its numbers fit together."""
    found = case(tmp_path) if case is disk_blocks else case()
    assert found.reason == reason, found
    assert 0 <= found.cached_tokens <= found.known_tokens <= found.prompt_tokens
    assert (found.source is None) == (found.cached_tokens == 0)
    assert found.why.endswith(".")
    assert "{" not in found.why


def test_every_reason_has_a_case() -> None:
    """The list is closed, and over thirty cases hold it."""
    assert set(CASES) == set(get_args(traces.Reason))
    assert len(MADE) > 30


def test_what_differs() -> None:
    """The place of the first other token, some 40 characters of both sides, and the message."""
    worker = Worker()
    worker.chat(dated("2026-11-28"))
    found = worker.chat(dated("2026-11-29")).difference
    assert found is not None
    assert found.position == len("<system>Now it is 2026-11-2")
    assert found.earlier == ("is 2026-11-28. " + SYSTEM)[:40]
    assert found.now == ("is 2026-11-29. " + SYSTEM)[:40]
    assert (found.message, found.role) == (0, "system")


@pytest.mark.parametrize(
    ("case", "message", "role"),
    [
        (message_changed, 1, "user"),
        (template_drops_a_thought, 2, "assistant"),
        (template_drops_the_newest_thought, 2, "assistant"),
        (answer_changed, 2, "assistant"),
        (date_in_a_result, 2, "tool"),
        (date_of_the_template, 0, "system"),
    ],
)
def test_which_message_differs(case: Callable[[], CacheTrace], message: int, role: str) -> None:
    """The one whose text holds the difference, and what it says names it."""
    found = case()
    assert found.difference is not None
    assert (found.difference.message, found.difference.role) == (message, role)
    if case is not new_conversation:
        assert f"essage {message} ({role})" in found.why


def test_where_it_lay() -> None:
    """In cells, or in host memory once the cells are others'."""
    assert complete().source == "cells"
    assert complete_by_memory().source == "memory"


def test_another_key_tells_nothing() -> None:
    """Of a prompt that only another key sent, the answer has what usage tells: how many tokens were
    cached. Neither its text nor how much more of it is known is said."""
    secret, asked = long(1) + "2" + long(2), long(1) + "3" + long(3)
    worker = Worker()
    worker.ask(secret, owner="ann")
    found = worker.ask(asked, owner="bob")
    assert found.reason == "new_text"
    assert found.known_tokens == found.cached_tokens == len(long(1))
    assert found.difference == traces.PromptDifference(found.cached_tokens)
    assert secret[400:410] not in msgspec.json.encode(found).decode()


@pytest.mark.parametrize("kind", [HYBRID, {"window": 32}, {}])
def test_another_key_tells_not_how_much_more_is_known(kind: dict[str, Any]) -> None:
    """What a key learns of a prompt does not depend on whether another one sent it, beyond the
    count of cached tokens: a model that continues from checkpoints withholds tokens of it."""
    worker = Worker(num_cells=20_000, **kind)
    worker.ask(long(1, 3_000), owner="ann")
    found = worker.ask(long(1, 2_900) + long(2, 20), owner="bob")
    assert found.known_tokens == found.cached_tokens
    assert found.reason in ("new_text", "first_time")


def test_who_else_runs_is_not_told() -> None:
    """That another key's request runs with the same text is no reason that is told."""
    worker = Worker(0, **HYBRID, num_slots=4)
    worker.ask(long(1), owner="ann")
    worker.engine.empty()
    worker.forget_cells()
    worker.start(long(1), count=300, owner="bob")
    for _ in range(5):
        worker.step()
    found = worker.finish(worker.start(long(1, 300), owner="ann"))
    assert found.reason == "other_layout"


def test_each_key_has_its_prompts() -> None:
    """A prompt of one's own is told apart from the same prompt of another key."""
    worker = Worker(store_bytes=16_000, num_cells=1_000, num_slots=2)
    worker.ask(long(0), owner="ann")
    for seed in range(1, 8):
        worker.ask(long(seed), owner="bob")
    assert worker.ask(long(0), owner="cid").reason == "first_time"
    for seed in range(1, 8):
        worker.ask(long(seed), owner="bob")
    assert worker.ask(long(0), owner="ann").reason == "evicted"


def filled(recent: RecentPrompts, owner: str, seed: int, count: int) -> KnownPrompt:
    tokens = np.random.default_rng(seed).integers(1, 1 << 15, count).astype(np.int32)
    known = recent.begin(owner, Prompt(tuple(tokens.tolist())), None)
    recent.end(known, Reuse(None, (0, ""), 0, True, tokens), 1.0, 2.0)
    return known


def test_the_memory_is_bounded() -> None:
    """In bytes and in prompts of a key; the key that holds the most loses its oldest ones."""
    recent = RecentPrompts(most_bytes=100_000, most_prompts=8)
    filled(recent, "ann", 1_000, 1_000)
    for seed in range(200):
        filled(recent, "bob", seed, 1_000)
        assert recent.num_bytes <= 100_000
    mine = recent.begin("ann", Prompt((1,)), None)
    usable, _ = recent.alike(mine, known_of(1_000, 1_500), 3.0, live=False)
    assert usable is not None
    assert usable.common == 1_000
    for seed in range(20):
        filled(recent, "cid", seed, 10)
    mine = recent.begin("cid", Prompt((1,)), None)
    seen = [recent.alike(mine, known_of(seed, 10), 3.0, live=False)[0] for seed in range(20)]
    assert [each is not None for each in seen] == [False] * 12 + [True] * 8


def known_of(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 1 << 15, count).astype(np.int32)


def test_a_longer_prompt_takes_the_place_of_its_beginning() -> None:
    """A conversation is remembered once, however many turns it has."""
    worker, text = Worker(), long(1, 100)
    for turn in range(10):
        worker.ask(text)
        text += worker.answer + long(turn, 20)
    assert worker.recent.num_bytes < 3 * 4 * len(text)


def test_who_left_is_remembered() -> None:
    """A request whose client left may have filled the cache: its prompt is one that came."""
    recent = RecentPrompts()
    known = recent.begin("", Prompt((1, 2, 3)), None)
    recent.end(known, None, 1.0, 2.0)
    mine = recent.begin("", Prompt((1, 2, 4)), None)
    usable, _ = recent.alike(mine, np.array([1, 2, 4], np.int32), 3.0, live=False)
    assert usable is not None
    assert usable.usable == 2
    never = recent.begin("ann", Prompt((7, 8)), None)
    recent.end(never, None, 0.0, 2.0)
    assert recent.alike(never, np.array([7, 8], np.int32), math.inf, live=True) == (None, None)


def test_what_rejoins() -> None:
    """A run of tokens in common behind the difference, whatever was put in or left out."""
    left, right = known_of(1, 300), known_of(2, 300)
    assert rejoins(left, np.concatenate([right[:50], left[30:]]))
    assert rejoins(np.concatenate([right[:50], left]), left)
    assert not rejoins(left, right)
    assert not rejoins(left[:10], left[:10])
