"""What the gate reads of headers."""

from __future__ import annotations

import pytest

from worker.account import account_for
from worker.http.headers import user_in


@pytest.mark.parametrize("name", ["bob", "J\u00f6rg", "\u732b", "a\u0301"])
def test_a_user_in_utf8(name: str) -> None:
    """A user is the same account in a header as in a body, which is UTF-8."""
    user = user_in([(b"host", b"h"), (b"x-user", name.encode())])
    assert user is not None
    assert account_for(user) == account_for(name)


def test_a_user_in_latin_1() -> None:
    """Bytes that are not UTF-8 are what HTTP once said that they are."""
    assert user_in([(b"x-user", "J\u00f6rg".encode("latin-1"))]) == "J\u00f6rg"
    assert user_in([(b"x-user", b"")]) == ""
    assert user_in([(b"host", b"h")]) is None
