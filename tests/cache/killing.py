"""A program that starts workers which write as fast as they can, and kills them.

    python -m tests.cache.killing FOLDER KILLS

Two share the folder at any time. Each first reads what it finds there. The program ends with an
error if one of them ended by itself, which it does when something that it read was wrong.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from tests.cache.states import ROW_BYTES, FakeState, check_parts, ints, rest_of
from worker.cache import folder
from worker.cache.disk import Disk
from worker.cache.store import Store

NUM_CHATS = 40
REST_BYTES = 300_000  # so that many kills hit a write in its middle
ROOM = 8 << 20
MEMORY = 2 << 20
_read = folder.read


def chat_of(number: int) -> list[int]:
    """The conversation with this number; all begin alike."""
    draw = random.Random(number)
    return [*range(100), *(draw.randrange(1000) for _ in range(draw.randrange(100, 200)))]


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
    disk.flush()
    store = Store(MEMORY, needs_rest=True, disk=disk)
    total = 0
    for number in range(NUM_CHATS):
        chat = chat_of(number)
        loaded = store.load(store.find(ints(chat)))
        if loaded is not None:
            beginning = chat[: loaded.num_tokens]
            check_parts(loaded.parts, beginning)
            assert loaded.rest is not None
            assert np.array_equal(loaded.rest, rest_of(beginning, REST_BYTES))
            total += len(beginning)
    return store, disk, total


def work(place: Path, begun: int) -> None:
    """Read all that is there, then write until the process is killed."""
    folder.read = read_or_die
    store, disk, _ = check_all(place)
    os.write(begun, b"x")
    draw = random.Random(os.getpid())
    while True:
        chat = chat_of(draw.randrange(NUM_CHATS))
        for length in (100, 150, len(chat)):
            store.keep(ints(chat[:length]), FakeState(chat[:length], REST_BYTES))
        disk.flush()


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


def main() -> None:
    """Kill, and start another one."""
    place, kills = Path(sys.argv[1]), int(sys.argv[2])
    draw = random.Random(1)
    workers = deque([started(place)])
    for _ in range(kills):
        workers.append(started(place))
        time.sleep(draw.random() * 0.02)
        oldest = workers.popleft()
        os.kill(oldest, signal.SIGKILL)
        _, status = os.waitpid(oldest, 0)
        if not os.WIFSIGNALED(status):
            raise SystemExit("a worker has ended by itself")
    os.kill(workers[0], signal.SIGKILL)


if __name__ == "__main__":
    main()
