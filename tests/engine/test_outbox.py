"""What a thread hands to the event loop: all of it, in order, until nobody is there."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from tests.support.descriptors import num_files
from worker.engine.thread import PATIENCE, Outbox, Write
from worker.llama.process.pipe import write


@pytest.mark.parametrize("writes", [os.write, write])
def test_everything_comes_in_order(writes: Write) -> None:
    """Whatever the two threads do meanwhile, and though the loop puts things in its own queue."""
    count = 50_000
    taken: list[int] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def take(items: list[int]) -> None:
            taken.extend(items)
            if items[-1] == count - 1:
                done.set()

        outbox = Outbox(loop, take, writes)
        thread = threading.Thread(target=lambda: [outbox.put(item) for item in range(count)])
        thread.start()
        while not done.is_set():
            await asyncio.wait({asyncio.ensure_future(done.wait())}, timeout=0)
        thread.join()
        outbox.close()

    asyncio.run(scenario())
    assert taken == list(range(count))


def test_what_nobody_waits_for_comes_with_the_next() -> None:
    """It rings for the item that somebody waits for, and for the PATIENCE-th that waits."""
    taken: list[int] = []
    rung: list[int] = []
    given = [0]

    async def scenario() -> None:
        def ring(descriptor: int, data: bytes) -> int:
            rung.append(given[-1])
            return write(descriptor, data)

        outbox = Outbox(asyncio.get_running_loop(), taken.extend, ring)
        outbox.put(0, rings=False)
        await asyncio.sleep(0.01)
        assert (taken, rung) == ([], [])
        given.append(1)
        outbox.put(1)
        while len(taken) < 2:
            await asyncio.sleep(0)
        for item in range(2, 2 + PATIENCE):
            given.append(item)
            outbox.put(item, rings=False)
        while len(taken) < 2 + PATIENCE:
            await asyncio.sleep(0)
        outbox.close()

    asyncio.run(scenario())
    assert taken == list(range(2 + PATIENCE))
    assert rung == [1, 1 + PATIENCE]  # the items that rang


def test_ring() -> None:
    """What waits is taken at once; where nothing waits nobody is woken."""
    rung: list[bytes] = []

    async def scenario() -> None:
        def counted(descriptor: int, data: bytes) -> int:
            rung.append(data)
            return write(descriptor, data)

        taken = asyncio.Event()
        outbox = Outbox[int](
            asyncio.get_running_loop(), lambda items: items == [1, 2] and taken.set(), counted
        )
        outbox.ring()
        assert not rung
        for item in (1, 2):
            outbox.put(item, rings=False)
        outbox.ring()
        await asyncio.wait_for(taken.wait(), 10)
        outbox.close()

    asyncio.run(scenario())
    assert len(rung) == 1


def test_each_item_wakes_a_loop_that_sleeps() -> None:
    """One by one: the next is put in only when the loop has taken the last and may sleep again."""
    taken: list[int] = []

    async def scenario() -> None:
        answers: list[threading.Event] = [threading.Event() for _ in range(500)]
        done = asyncio.Event()

        def take(items: list[int]) -> None:
            (item,) = items
            taken.append(item)
            answers[item].set()
            if item == len(answers) - 1:
                done.set()

        outbox = Outbox(asyncio.get_running_loop(), take, write)

        def put() -> None:
            for item, answer in enumerate(answers):
                outbox.put(item)
                assert answer.wait(10)

        thread = threading.Thread(target=put)
        thread.start()
        await asyncio.wait_for(done.wait(), 10)
        thread.join()
        outbox.close()

    asyncio.run(scenario())
    assert taken == list(range(500))


def test_a_late_loop_is_woken_once() -> None:
    """What piles up while the loop does something else costs one byte, so the pipe never fills."""
    written: list[bytes] = []

    def counted(descriptor: int, data: bytes) -> int:
        written.append(data)
        return os.write(descriptor, data)

    async def scenario() -> list[int]:
        taken: list[int] = []
        outbox = Outbox(asyncio.get_running_loop(), taken.extend, counted)
        thread = threading.Thread(target=lambda: [outbox.put(item) for item in range(100_000)])
        thread.start()
        thread.join()  # the loop does nothing meanwhile
        assert not taken
        while len(taken) < 100_000:
            await asyncio.sleep(0)
        outbox.close()
        return taken

    assert asyncio.run(scenario()) == list(range(100_000))
    assert len(written) == 1


def test_close_takes_out_the_rest_and_lets_go_of_the_pipe() -> None:
    """Also where the loop has not woken since; afterwards its numbers are free for others."""

    async def scenario() -> None:
        before = num_files()
        taken: list[str] = []
        outbox = Outbox(asyncio.get_running_loop(), taken.extend, write)
        outbox.put("last words")
        outbox.close()
        assert taken == ["last words"]
        assert num_files() == before
        # A descriptor of the same number can be watched now.
        ear, bell = os.pipe()
        heard = asyncio.Event()
        asyncio.get_running_loop().add_reader(ear, heard.set)
        os.write(bell, b"\0")
        await asyncio.wait_for(heard.wait(), 10)
        asyncio.get_running_loop().remove_reader(ear)
        os.close(ear)
        os.close(bell)

    asyncio.run(scenario())


def test_nobody_is_told_by_a_closed_loop() -> None:
    """The engine may end its last step after the loop: nothing is raised, nothing taken."""
    taken: list[str] = []

    async def scenario() -> Outbox[str]:
        return Outbox(asyncio.get_running_loop(), taken.extend, write)

    before = num_files()
    outbox = asyncio.run(scenario())
    outbox.put("to nobody")
    outbox.close()
    assert taken == []
    assert num_files() == before


@pytest.mark.parametrize("result", [-1, None])
def test_a_pipe_that_takes_no_byte(result: int | None) -> None:
    """Where the pipe fails the loop is woken in its own way: nothing that was put in is lost."""
    taken: list[int] = []

    def failing(descriptor: int, data: bytes) -> int:
        if result is None:
            raise OSError
        return result

    async def scenario() -> None:
        done = asyncio.Event()

        def take(items: list[int]) -> None:
            taken.extend(items)
            if items[-1] == 9:
                done.set()

        outbox = Outbox(asyncio.get_running_loop(), take, failing)
        thread = threading.Thread(target=lambda: [outbox.put(item) for item in range(10)])
        thread.start()
        await asyncio.wait_for(done.wait(), 60)
        thread.join()
        outbox.close()

    asyncio.run(scenario())
    assert taken == list(range(10))
