"""Clients that leave a stream anywhere and come back for the rest."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.support import http


def numbered_events(data: bytes) -> list[bytes]:
    """The whole events among these bytes, without comments."""
    return [event for event in data.split(b"\n\n")[:-1] if not event.startswith(b":")]


def id_of(event: bytes) -> int:
    """Its number, told by its first line."""
    field, _, number = event.partition(b"\n")[0].partition(b": ")
    assert field == b"id"
    return int(number)


def read_in_parts(
    url: str, path: str, body: dict[str, Any], random: Random, most: int = 1000, **headers: str
) -> tuple[list[bytes], int, str]:
    """All events of a stream whose client leaves again and again, how often it did, and its id.

    It breaks off in the midst of events, too; an event that it has not whole it asks for again.
    """
    found: list[bytes] = []
    asked: dict[str, Any] = {"method": "POST", "url": url + path, "json": body}
    num_left, name = 0, ""
    while True:
        with http.client.stream(**asked, headers={"x-resume": "on", **headers}) as answer:
            assert answer.status_code == 200, answer.read()
            name = answer.headers["x-stream-id"]
            data, room = b"", random.randrange(20, 3000) if num_left < most else 1 << 30
            has_ended = True
            for part in answer.iter_raw():
                data += part
                if len(data) >= room:
                    has_ended = False
                    data = data[:room]
                    break
        found += numbered_events(data)
        if has_ended:
            return found, num_left, name
        num_left += 1
        after = f"?after={id_of(found[-1])}" if found else ""
        asked = {"method": "GET", "url": f"{url}/v1/streams/{name}{after}"}
