"""What a key may ask in a minute: buckets that fill evenly, and OpenAI's headers."""

from __future__ import annotations

import pytest

from worker.account import NOBODY, Account
from worker.errors import RateLimitError
from worker.requests.quota import Quotas, duration


class Clock:
    """Seconds, as a test sets them."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_requests() -> None:
    """As many at once as a minute has, then one for each part of a minute that has passed."""
    clock = Clock()
    quota = Quotas(clock).of(Account("alice", rpm=3))
    assert quota is not None
    for _ in range(3):
        quota.take_request()
    with pytest.raises(RateLimitError, match="alice has used its 3 requests a minute") as caught:
        quota.take_request()
    assert caught.value.retry_after_s == 20
    clock.now = 19.9
    with pytest.raises(RateLimitError):
        quota.take_request()
    clock.now = 20.1
    quota.take_request()
    with pytest.raises(RateLimitError):
        quota.take_request()


def test_tokens() -> None:
    """They are taken at the end, and what was overdrawn comes back before a request may come."""
    clock = Clock()
    quota = Quotas(clock).of(Account("bob", tpm=600))
    assert quota is not None
    quota.take_request()
    quota.take_request()
    quota.take_tokens(700)
    with pytest.raises(RateLimitError, match="600 tokens a minute") as caught:
        quota.take_request()
    assert caught.value.retry_after_s == 11
    clock.now = 10.2
    quota.take_request()


def test_headers() -> None:
    """OpenAI's names; of what has no limit there are none."""
    clock = Clock()
    quotas = Quotas(clock)
    quota = quotas.of(Account("alice", rpm=60, tpm=1_200))
    assert quota is not None
    quota.take_request()
    quota.take_tokens(1_300)
    assert {name.decode(): value.decode() for name, value in quota.fields()} == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "1200",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "1m5s",
    }
    few = quotas.of(Account("few", tpm=5))
    assert few is not None
    assert [name for name, _ in few.fields()] == [
        b"x-ratelimit-limit-tokens", b"x-ratelimit-remaining-tokens", b"x-ratelimit-reset-tokens",
    ]  # fmt: skip


def test_whose() -> None:
    """An account has one quota as long as its limits stay; one without limits has none."""
    quotas = Quotas(Clock())
    assert quotas.of(NOBODY) is None
    assert quotas.of(Account("free", weight=2, running=3)) is None
    first = quotas.of(Account("alice", rpm=1))
    assert first is not None
    first.take_request()
    assert quotas.of(Account("alice", rpm=1)) is first
    second = quotas.of(Account("alice", rpm=2))
    assert second is not None
    second.take_request()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.0123, "13ms"), (1, "1s"), (7.654, "7.66s"), (59.9, "59.9s"), (60, "1m0s"),
     (359.2, "6m0s")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    """Milliseconds, seconds, minutes and seconds, rounded up."""
    assert duration(seconds) == text
