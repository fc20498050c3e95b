"""Commands that start something end by an exception, so that what they started ends too."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Generator

from worker.lifecycle.leave import stop_signals


@contextlib.contextmanager
def raising_stop_signals() -> Generator[None]:
    """Inside, what asks the process to stop does as Ctrl-C does: it raises KeyboardInterrupt, here
    with the exit code of that signal."""

    def stop(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(128 + number)

    numbers = set(stop_signals()) - {signal.SIGINT}
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
