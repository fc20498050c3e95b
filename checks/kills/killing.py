"""A program that starts workers which write as fast as they can, and kills them.

    python -m checks.kills.killing FOLDER KILLS

Two share the folder at any time. Each first reads what it finds there, and is killed while a file
of its own is not finished. The program ends with an error if one of them ended by itself, which it
does when something that it read was wrong.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from tests.cache.states import ROW_BYTES, FakeState, ints
from tests.support.disks import flush
from tests.support.programs.processes import PATIENCE_S
from worker import files, log
from worker.cache import folder
from worker.cache.disk import Disk
from worker.cache.store import Store

NUM_CHATS = 20
REST_BYTES = 1_000_000  # so that most of the time goes by in the middle of a file
ROOM = 16 << 20
MEMORY = 4 << 20
_read = folder.read


def chat_of(number: int) -> list[int]:
    """The conversation with this number; all begin alike."""
    draw = random.Random(number)
    return [*range(100), *(draw.randrange(1000) for _ in range(draw.randrange(100, 200)))]


@functools.cache
def states_of(number: int) -> dict[int, FakeState]:
    """States of a conversation, by how many tokens they are after."""
    chat = chat_of(number)
    lengths = (100, 150, len(chat))
    return {length: FakeState(chat[:length], REST_BYTES) for length in lengths}


@functools.cache
def rows_of(number: int) -> np.ndarray:
    """All rows of a conversation; uint8."""
    chat = chat_of(number)
    return FakeState(chat).rows(0, len(chat))


def read_or_die(*args: Any) -> np.ndarray:
    """Like `folder.read`, but a damaged file ends the process: no kill may leave one."""
    try:
        return _read(*args)
    except ValueError as error:
        print(args[0], error, file=sys.stderr)
        os._exit(1)


def check_all(place: Path) -> tuple[Store, Disk, int]:
    """A new worker's store and disk, and how many tokens it has found; all were right."""
    disk = Disk(place, ROOM, b"model", ROW_BYTES)
    flush(disk)
    store = Store(MEMORY, needs_rest=True, disk=disk)
    total = 0
    for number in range(NUM_CHATS):
        loaded = store.load(store.find(ints(chat_of(number))))
        if loaded is not None:
            state = states_of(number)[loaded.num_tokens]
            rows = [packed[: count * ROW_BYTES] for packed, count in loaded.parts]
            whole = np.concatenate(rows)
            assert np.array_equal(whole, rows_of(number)[: loaded.num_tokens * ROW_BYTES])
            assert loaded.rest is not None
            assert state.rest is not None
            assert np.array_equal(loaded.rest, state.rest)
            total += loaded.num_tokens
    return store, disk, total


def work(place: Path, begun: int) -> None:
    """Read all that is there, then write until the process is killed."""
    folder.read = read_or_die
    # The name of an unfinished file tells whose it is.
    files.secrets.token_hex = lambda _=0: f"of-{os.getpid()}-{time.monotonic_ns()}"
    store, disk, _ = check_all(place)
    os.write(begun, b"x")
    draw = random.Random(os.getpid())
    while True:
        number = draw.randrange(NUM_CHATS)
        for length, state in states_of(number).items():
            store.keep(ints(chat_of(number)[:length]), state)
        flush(disk)


def started(place: Path) -> int:
    """The process id of a worker that is about to write."""
    begun, tell = os.pipe()
    child = os.fork()
    if not child:
        try:
            work(place, tell)
        finally:
            os._exit(1)
    os.close(tell)
    os.read(begun, 1)  # nothing is read where it has ended already
    os.close(begun)
    return child


def has_begun(place: Path, worker: int) -> bool:
    """Whether there is a file with something in it that the worker has not finished."""
    for path in place.glob(f"*/.*.of-{worker}-*.partial"):
        with contextlib.suppress(FileNotFoundError):  # another one has removed it
            return path.stat().st_size > 0
    return False


def kill(place: Path, worker: int, draw: random.Random) -> None:
    """Stop a worker that writes, and kill it where that was in the middle of a file."""
    time.sleep(draw.random() * 0.02)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        while not has_begun(place, worker):
            if os.waitpid(worker, os.WNOHANG)[0]:
                raise SystemExit("a worker has ended by itself")
            if time.monotonic() > deadline:
                os.kill(worker, signal.SIGKILL)
                raise SystemExit("a worker writes nothing")
        os.kill(worker, signal.SIGSTOP)
        _, status = os.waitpid(worker, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise SystemExit("a worker has ended by itself")
        if has_begun(place, worker):
            break
        os.kill(worker, signal.SIGCONT)
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)


def main() -> None:
    """Kill, and start another one."""
    place, kills = Path(sys.argv[1]), int(sys.argv[2])
    log.configure("console", "error")
    for number in range(NUM_CHATS):  # once for all workers
        states_of(number)
        rows_of(number)
    draw = random.Random(1)
    workers = deque([started(place)])
    for _ in range(kills):
        workers.append(started(place))
        kill(place, workers.popleft(), draw)
    os.kill(workers[0], signal.SIGKILL)


if __name__ == "__main__":
    main()
