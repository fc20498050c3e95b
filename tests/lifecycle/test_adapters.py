"""Which adapters a request gets."""

from __future__ import annotations

import pytest

from worker.errors import RequestError, UsageError
from worker.lifecycle.adapters import Adapter, ServedAdapters
from worker.limits import ADAPTERS
from worker.model.adapter import AdapterConfig


def adapter(number: int, *, counts: bool = False) -> Adapter:
    config = AdapterConfig(
        name=f"a{number}", architecture="llama", base=None, rank=1, alpha=1.0, matrices=1,
        n_params=1, size_bytes=1, files=(),
    )  # fmt: skip
    digest = bytes([number]) * 16
    return Adapter(
        id=number, name=f"a{number}", scale=1.0, counts=counts, digest=digest, config=config
    )


def test_so_many_count_at_once() -> None:
    """Of a request, and of the command line; what has the scale 0 does not count."""
    most = ADAPTERS.most
    served = ServedAdapters(["m"], map(adapter, range(most + 1)))
    scales = dict.fromkeys(range(most + 1), 1.0)
    with pytest.raises(RequestError, match=f"{most + 1} adapters would count at once, {most} is"):
        served.choose(None, scales)
    keys = {served.choose(None, scales | {most: 0.0}).key, served.choose(None, {0: 1.0}).key}
    assert len(keys) == 2
    with pytest.raises(UsageError, match=f"{most} is the most"):
        ServedAdapters(["m"], [adapter(number, counts=True) for number in range(most + 1)])
