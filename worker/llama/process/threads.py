"""How many compute threads are fastest: learned on real steps, because more is not always faster.

With a small model threads mostly wait for each other: the demo model computes a row in 0.25 ms with
one thread and in 0.65 ms with two. With a large model the memory is the limit, and often a few
threads already use all of its bandwidth.
"""

from __future__ import annotations

import statistics

# Steps of a turn. The first one after a change forms a new team of threads and does not count.
_TURN = 3
# Turns with each of two numbers before a verdict; one where the other takes more or less than these
# shares of the time. Less than half is seen where threads of a small model wait for a busy CPU.
_PAIRS = 3
_CLEARLY_WORSE, _CLEARLY_BETTER = 1.25, 0.5
# A step with half of the threads that is clearly worse by more than these seconds is the last one
# of its turn, also where it is the first: no team is formed for it, and a neighbour seldom keeps a
# CPU that long (0.01 s led to one wrong verdict in ten where every fiftieth step took 15 ms more).
# What takes more than about twice the time is a neighbour's doing too. Three steps of eight rows of
# a Llama-1B with one thread of two took half a second more.
_SURELY_WORSE_S, _TWICE = 0.05, 2.5
# Fewer threads must take at most this share of the time: idle threads may still help with prompts.
_GAIN = 0.95
# Steps until the numbers beside the best one are tried again, because neighbours come and go. After
# a change the wait is short: a verdict of a busy minute (one thread where two are a quarter faster)
# must not last. Each verdict that changes nothing doubles it, until the neighbours have gone: after
# an hour beside three servers a stream of the 125M shape was at 0.7 of llama-server for some 600
# steps, with one thread.
_FIRST_WAIT, _LONGEST_WAIT = 60, 1000


class ThreadChoice:
    """The numbers of threads for steps of one row, and for steps of several rows.

    Only steps in which each row is another sequence's are compared: chunks of prompts differ.
    """

    def __init__(self, limit: int) -> None:
        """limit: threads to begin with, and the most that are tried"""
        self._one, self._several = ThreadLesson(limit), ThreadLesson(limit)
        self._is_shared = False

    @property
    def one(self) -> int:
        """Threads for the next step of one row."""
        return self._one.threads

    @property
    def several(self) -> int:
        """Threads for the next step of several rows."""
        return self._several.threads

    @property
    def best(self) -> tuple[int, int]:
        """`one` and `several` as far as they are known: for chunks of prompts, which teach nothing
        and are not to take longer because something is tried."""
        return self._one.best, self._several.best

    def is_trial(self, rows: int) -> bool:
        """Whether the next step of so many rows tries another number than the best one so far, or
        comes right after that: its time is not what such steps take."""
        return (self._one if rows == 1 else self._several).is_trial

    def is_settled(self, rows: int) -> bool:
        """Whether nothing is tried for steps of so many rows, for now."""
        return not (self._one if rows == 1 else self._several).others

    def note_neighbours(self, *, busy: bool) -> None:
        """Whether others keep the CPUs busy. Once they have gone more threads are tried."""
        if self._is_shared and not busy:
            self._one.look_again()
            self._several.look_again()
        self._is_shared = busy

    def observe(self, rows: int, seconds: float) -> None:
        """A step of so many rows of as many sequences took so long."""
        (self._one if rows == 1 else self._several).observe(rows, seconds)


class ThreadLesson:
    """Which number of threads is fastest for one kind of work.

    Half of the best number is tried, then half of that, as long as fewer are faster.

    The best and the other take turns of a few steps, so that contexts are equally deep and the
    machine is equally busy for both.
    """

    def __init__(self, limit: int) -> None:
        """limit: threads to begin with, and the most that are tried"""
        self._limit, self.best = limit, limit
        self.others = _halves(limit)  # to be tried
        self._wait = 0  # steps until they are
        self._next_wait = _LONGEST_WAIT
        self._restart()

    def _restart(self) -> None:
        """Begin a comparison with the best number's turn."""
        self._ratios: list[float] = []
        self._usual: float | None = None  # seconds of a step in the best number's turn
        self._rows = 0
        self._begin(self.best)

    def _begin(self, threads: int) -> None:
        self.threads = threads
        self._turn: list[float] = []

    @property
    def is_trial(self) -> bool:
        """Whether the next work tries another number than the best, or comes right after that."""
        return bool(self.others) and (self.threads != self.best or not self._turn)

    def look_again(self) -> None:
        """Try more threads at once, where fewer were faster beside others."""
        if self.best < self._limit and self._wait:
            self._wait, self._next_wait = 1, _FIRST_WAIT

    def observe(self, rows: int, seconds: float) -> None:
        """Work with `threads` on so many rows took so long."""
        if self._wait:
            self._wait -= 1
            if not self._wait:
                self.others = _neighbours(self.best, self._limit)
            return
        if not self.others:
            return
        if rows != self._rows:  # steps of other numbers of rows take another time
            self._restart()
            self._rows = rows
        self._turn.append(seconds)
        is_worse = self.threads < self.best and self._is_surely_worse(seconds)
        if len(self._turn) < _TURN and not is_worse:
            return
        # A neighbour may have taken the CPU from one of them.
        took = seconds if is_worse else min(self._turn[1:])
        if self.threads == self.best:
            self._usual = took
            self._begin(self.others[0])
        else:
            # A clock may stand still.
            self._ratios.append(took / self._usual if self._usual else 1.0)
            is_clear = not _CLEARLY_BETTER <= self._ratios[-1] <= _CLEARLY_WORSE
            if is_clear or len(self._ratios) == _PAIRS:
                self._decide(self.others.pop(0))
            self._begin(self.best)

    def _is_surely_worse(self, seconds: float) -> bool:
        usual = self._usual or 0.0
        return max(_CLEARLY_WORSE * usual, usual + _SURELY_WORSE_S) < seconds < _TWICE * usual

    def _decide(self, other: int) -> None:
        ratio = statistics.median(self._ratios)
        before = self.best
        # More threads than the best number are a return to what others expect: no gain is asked.
        if ratio < (_GAIN if other < self.best else 1.0):
            self.best = other
            self.others = _halves(other) if other < self._limit else []
        elif other < self.best:
            self.others = []
        if self.best != before:
            self._next_wait = _FIRST_WAIT
        if not self.others:
            self._wait = self._next_wait
            self._next_wait = min(2 * self._next_wait, _LONGEST_WAIT)
        self._restart()


def _halves(threads: int) -> list[int]:
    return [threads // 2] if threads > 1 else []


def _neighbours(best: int, limit: int) -> list[int]:
    more = [min(2 * best, limit)] if best < limit else []
    return more + _halves(best)
