"""Who comes first: the queue's order, who makes way for whom, and who sits out a step."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from worker.account import Account
from worker.engine.sequence import Sequence

# Seconds in which nothing of one priority was admitted, and which are worth one step of priority.
AGE_S = 30.0
# Virtual tokens that one account may be ahead of another, divided by its weight: what it had more
# is forgotten, so that its streams wait for no more than half as many tokens of the other.
MOST_OWED = 1_024
# Virtual tokens that one account may be ahead of another, divided by its weight, before its streams
# sit out a step: slots that change hands make up for less, without a step of fewer rows.
SLACK = 32
# Seconds after which an account without sequences is gone. A client that asks one request after the
# other has none here between two, and is owed what others had meanwhile.
GONE_S = 1.0
# Accounts that are remembered at most, besides those that are not gone: users have any names.
MOST_KNOWN = 1_024
# Rows that a prompt is taken to have in a step. It may have more, which the counters have then.
_PROMPT_ROWS = 64


class _Level:
    """Those of one priority that wait, by account, each in the order of their coming.

    since  when one of them was admitted last; before that, when the first one came
    """

    __slots__ = ("priority", "queues", "since")

    def __init__(self, priority: int, now: float) -> None:
        self.priority, self.since = priority, now
        self.queues: dict[_Standing, deque[Sequence]] = {}


class _Standing:
    """What the sequences of one account got; those that wait or run are counted.

    served   virtual tokens, divided by the account's weight
    left_at  when it had none the last time
    """

    __slots__ = ("account", "left_at", "num_alive", "num_running", "served")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.served = self.left_at = 0.0
        self.num_alive = self.num_running = 0

    @property
    def is_batch(self) -> bool:
        """Whether it is of lines of batches, whose counters are compared with each other only."""
        return self.account.is_batch

    @property
    def is_full(self) -> bool:
        most = self.account.running
        return most is not None and self.num_running >= most

    @property
    def least(self) -> float:
        """Its counter, if it is ahead by SLACK."""
        return self.served - SLACK / self.account.weight

    def slots(self, more: int = 0) -> float:
        """That it holds, and so many more, divided by its weight."""
        return (self.num_running + more) / self.account.weight


class Order:
    """The queue, and all that knows of priorities and accounts. The scheduler asks it.

    Three rules, of which the first that decides counts:

    1. The lowest *worth* comes first. A priority is worth its number, and one less for each AGE_S
       seconds in which nothing of it was admitted while some of it waited:
       ``worth = priority - floor((now - since) / AGE_S)``. A sequence keeps the worth with which it
       was admitted.
    2. Among accounts, the one that was served least comes first. This is the virtual token counter
       of Sheng et al., "Fairness in Serving Large Language Models" (2024): a counter grows by one
       for each row of a step and one more for each stream, so a token of a prompt is 1 and one of
       an answer 2, divided by the account's weight; whoever comes after GONE_S without anything
       here is lifted to the lowest counter of the others. More than MOST_OWED is forgotten.
    3. First in, first out; a sequence that was put back is the first of its priority and account.

    Where all have one priority and one account only the third rule is left, and nothing is counted.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: the engine's"""
        self._clock = clock
        self._levels: dict[int, _Level] = {}
        self._standings: dict[str, _Standing] = {}
        self._active: dict[_Standing, None] = {}  # those that are not gone
        self._num_waiting = 0
        self._num_lines = 0  # of batches, of those that wait
        self._num_batches = 0  # lines of them that wait or run

    def __len__(self) -> int:
        return self._num_waiting

    def __iter__(self) -> Iterator[Sequence]:
        """Those that wait, about in the order in which they come."""
        for level in sorted(self._levels.values(), key=_priority):
            yield from itertools.chain.from_iterable(level.queues.values())

    @property
    def has_batches(self) -> bool:
        """Whether lines of batches are among all."""
        return self._num_batches > 0

    @property
    def has_others(self) -> bool:
        """Whether some that wait are no lines of batches."""
        return self._num_waiting > self._num_lines

    @property
    def is_shared(self) -> bool:
        """Whether several accounts have sequences here, or had them just now."""
        return len(self._active) > 1

    def add(self, sequence: Sequence) -> None:
        """A new one waits."""
        account = sequence.account
        standing = self._standings.get(account.line)
        if standing is None:
            standing = self._standings[account.line] = _Standing(account)
        standing.account = account  # the newest word on its weight
        if not standing.num_alive:
            self._forget_gone()
            if standing not in self._active:
                self._standings[account.line] = self._standings.pop(account.line)
                self._forget_oldest()
                alike = (s.served for s in self._active if s.is_batch == standing.is_batch)
                least = min(alike, default=0.0)
                standing.served = max(standing.served, least)
                self._active[standing] = None
        standing.num_alive += 1
        self._num_batches += sequence.is_batch
        self._queue_of(sequence).append(sequence)
        self._count(sequence, 1)

    def put_back(self, sequence: Sequence) -> None:
        """One that runs waits again, before others of its priority and account."""
        self._standing_of(sequence).num_running -= 1
        self._queue_of(sequence).appendleft(sequence)
        self._count(sequence, 1)

    def end(self, sequence: Sequence, *, ran: bool) -> None:
        """It is gone. ran: it did not wait"""
        standing = self._standing_of(sequence)
        if ran:
            standing.num_running -= 1
        else:
            self._leave(sequence)
        standing.num_alive -= 1
        self._num_batches -= sequence.is_batch
        if not standing.num_alive:
            standing.left_at = self._clock()

    def admit(self, sequence: Sequence) -> None:
        """One that waits runs from now on."""
        level, now = self._levels[sequence.priority], self._clock()
        sequence.worth = _worth(level, now) if len(self._levels) > 1 else sequence.priority
        level.since = now
        self._leave(sequence)
        self._standing_of(sequence).num_running += 1

    def next(self) -> Sequence | None:
        """Who comes first of those that wait and may run; None: nobody does."""
        if not self._num_waiting:
            return None
        levels: Iterable[_Level] = self._levels.values()
        if len(self._levels) > 1:
            now = self._clock()
            levels = sorted(levels, key=lambda each: (_worth(each, now), each.priority))
        for level in levels:
            queues = level.queues
            may = [each for each in queues if not each.is_full]
            if may:
                return queues[min(may, key=_service_of) if len(may) > 1 else may[0]][0]
        return None

    def rival(self, sequence: Sequence, running: list[Sequence]) -> Sequence | None:
        """Who makes way for one that waits; None: nobody does.

        The youngest of those whose worth is the highest and above its priority. Else, of the same
        worth, the youngest of the account that holds the most slots for its weight: if it was
        served no less, and holds no fewer afterwards. Not one that would lose what it has.
        """
        if not self._levels or (len(self._active) == 1 and not _differ(sequence, running)):
            return None
        movable = [s for s in running if s.prompt_logprobs is None and not s.is_suspect]
        worse = [s for s in movable if s.worth > sequence.priority]
        if worse:
            most = max(s.worth for s in worse)
            return next(s for s in reversed(worse) if s.worth == most)
        its, found = self._standing_of(sequence), None
        for each in reversed(movable):
            other = self._standing_of(each)
            if (
                each.worth == sequence.priority
                and other is not its
                and other.served >= its.served
                and other.slots(-1) >= its.slots(+1)
                and (found is None or other.slots() > self._standing_of(found).slots())
            ):
                found = each
        return found

    def last(self, running: list[Sequence]) -> Sequence:
        """Who goes back into the queue for want of cells: the youngest of the highest worth."""
        most = max(s.worth for s in running)
        return next(s for s in reversed(running) if s.worth == most)

    def in_turn(self, active: list[Sequence]) -> list[Sequence]:
        """Those of the sequences that get rows which take part in the step: of each account that is
        not ahead of where the last one will be after it, but for SLACK.

        So accounts share steps, and get equal shares however many streams they have. Nobody sits
        out for one of a higher worth. Among running sequences a worth decides nothing else: one
        that sat out for its worth would never be admitted again, which is what ages.
        """
        gains: dict[_Standing, float] = {}
        lasts: dict[int, float] = {}  # by worth: the lowest counter after the step
        for worth, some in itertools.groupby(sorted(active, key=_worth_of), _worth_of):
            for each in some:
                standing = self._standing_of(each)
                rows = 2 if each.is_stream else min(each.num_missing, _PROMPT_ROWS)
                gains[standing] = gains.get(standing, 0.0) + rows / standing.account.weight
            lasts[worth] = min(standing.served + gain for standing, gain in gains.items())
        return [each for each in active if self._standing_of(each).least <= lasts[each.worth]]

    def charge(self, runs: Iterable[tuple[Sequence, int]]) -> None:
        """These sequences get so many rows each in the coming step; where accounts share."""
        served: set[_Standing] = set()
        for sequence, count in runs:
            standing = self._standing_of(sequence)
            standing.served += (count + sequence.is_stream) / standing.account.weight
            served.add(standing)
        for is_batch in {each.is_batch for each in served}:
            alike = [each for each in served if each.is_batch == is_batch]
            floor = max(each.served - MOST_OWED / each.account.weight for each in alike)
            for standing in self._active:
                if standing.is_batch == is_batch:
                    standing.served = max(standing.served, floor)
        self._forget_gone()

    def _forget_gone(self) -> None:
        now = self._clock()
        for standing in [each for each in self._active if not each.num_alive]:
            if now - standing.left_at > GONE_S:
                del self._active[standing]

    def _forget_oldest(self) -> None:
        """Of too many that are gone, the one that came the longest ago."""
        if len(self._standings) - len(self._active) > MOST_KNOWN:
            gone = (line for line, each in self._standings.items() if each not in self._active)
            del self._standings[next(gone)]

    def _standing_of(self, sequence: Sequence) -> _Standing:
        return self._standings[sequence.account.line]

    def _queue_of(self, sequence: Sequence) -> deque[Sequence]:
        level = self._levels.get(sequence.priority)
        if level is None:
            level = self._levels[sequence.priority] = _Level(sequence.priority, self._clock())
        return level.queues.setdefault(self._standing_of(sequence), deque())

    def _count(self, sequence: Sequence, more: int) -> None:
        self._num_waiting += more
        self._num_lines += more * sequence.is_batch

    def _leave(self, sequence: Sequence) -> None:
        level, standing = self._levels[sequence.priority], self._standing_of(sequence)
        queue = level.queues[standing]
        queue.remove(sequence)  # mostly the first one
        self._count(sequence, -1)
        if not queue:
            del level.queues[standing]
            if not level.queues:
                del self._levels[sequence.priority]


def worth_of(priority: int, since: float, now: float) -> int:
    """What a priority is worth of which nothing was admitted since then."""
    return priority - int((now - since) / AGE_S)


def _worth(level: _Level, now: float) -> int:
    return worth_of(level.priority, level.since, now)


def _priority(level: _Level) -> int:
    return level.priority


def _service_of(standing: _Standing) -> float:
    return standing.served


def _worth_of(sequence: Sequence) -> int:
    return sequence.worth


def _differ(sequence: Sequence, running: list[Sequence]) -> bool:
    return any(s.worth != sequence.priority for s in running)
