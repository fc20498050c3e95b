"""A running worker's address, as a command is given it."""

from __future__ import annotations

import argparse
import contextlib
from urllib.parse import urlsplit

import msgspec

from worker.cli.options import settings_from
from worker.errors import UsageError
from worker.isolation.keys import hide_key


class Address(msgspec.Struct, frozen=True):
    """Where a worker listens, a URL without a slash at its end; and the key that it asks for."""

    url: str
    key: str | None


def address_from(arguments: argparse.Namespace) -> Address:
    """What a command was given: a key, which is hidden now, and `url`: `http://HOST:PORT/PREFIX`,
    also without scheme, port or prefix. Raises UsageError."""
    key = next(iter(settings_from(arguments).api_keys), None)
    hide_key()
    text: str = arguments.url
    with contextlib.suppress(ValueError):  # as of a wrong port
        parts = urlsplit(text if "://" in text else f"http://{text}")
        url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        is_plain = url.isascii() and url.isprintable() and not {" ", "@"} & set(url)
        if is_plain and parts.hostname and parts.scheme in ("http", "https") and parts.port != 0:
            return Address(url, key)
    raise UsageError(f"{text!r} is no worker's address.", hint="Write http://HOST:PORT.")
