"""What a key may ask in a minute, and what is left of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from worker.account import Account
from worker.errors import RateLimitError

_MINUTE_S = 60.0
_Fields = list[tuple[bytes, bytes]]


class _Bucket:
    """Fills evenly, by `most` a minute, and holds no more than that."""

    def __init__(self, most: int, now: float) -> None:
        self.most = most
        self._level, self._at = float(most), now

    def level(self, now: float) -> float:
        """What is left; below 0 where more was taken than there was."""
        self._level = min(self.most, self._level + (now - self._at) * self.most / _MINUTE_S)
        self._at = now
        return self._level

    def take(self, count: int, now: float) -> None:
        self._level = self.level(now) - count

    def seconds_to(self, level: float, now: float) -> float:
        """Until so much is left."""
        return max(0.0, (level - self.level(now)) * _MINUTE_S / self.most)


class Quota:
    """Requests are taken when they come, tokens of prompts and answers when a request has ended:
    how many it will have nobody knows before. So tokens may be overdrawn, and come back first."""

    def __init__(self, account: Account, clock: Callable[[], float]) -> None:
        now = clock()
        self.account = account
        self._clock = clock
        self._requests = None if account.rpm is None else _Bucket(account.rpm, now)
        self._tokens = None if account.tpm is None else _Bucket(account.tpm, now)

    def take_request(self) -> None:
        """One more. Raises RateLimitError where nothing is left."""
        now = self._clock()
        for bucket, noun in ((self._requests, "requests"), (self._tokens, "tokens")):
            if bucket is not None and bucket.level(now) < 1:
                raise RateLimitError(
                    f"{self.account.name} has used its {bucket.most:,} {noun} a minute.",
                    retry_after_s=max(1, math.ceil(bucket.seconds_to(1, now))),
                )
        if self._requests is not None:
            self._requests.take(1, now)

    def take_tokens(self, count: int) -> None:
        """A request that has ended had so many."""
        if self._tokens is not None:
            self._tokens.take(count, self._clock())

    def fields(self) -> _Fields:
        """OpenAI's headers of what is allowed, what is left, and when all of it is there again."""
        now, fields = self._clock(), list[tuple[bytes, bytes]]()
        for bucket, noun in ((self._requests, "requests"), (self._tokens, "tokens")):
            if bucket is not None:
                for what, value in (
                    ("limit", str(bucket.most)),
                    ("remaining", str(max(0, int(bucket.level(now))))),
                    ("reset", duration(bucket.seconds_to(bucket.most, now))),
                ):
                    fields.append((f"x-ratelimit-{what}-{noun}".encode(), value.encode()))
        return fields


class Quotas:
    """One for each account that has limits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quotas: dict[str, Quota] = {}

    def of(self, account: Account) -> Quota | None:
        """None: it has no limits. One whose limits have changed begins anew."""
        if account.rpm is None and account.tpm is None:
            return None
        quota = self._quotas.get(account.name)
        if quota is None or quota.account != account:
            quota = self._quotas[account.name] = Quota(account, self._clock)
        return quota


def duration(seconds: float) -> str:
    """As OpenAI writes it: 120ms, 7.5s, 2m3s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1e3)}ms"
    if seconds < _MINUTE_S:
        return f"{math.ceil(seconds * 100) / 100:g}s"
    whole = math.ceil(seconds)
    return f"{whole // 60}m{whole % 60}s"
