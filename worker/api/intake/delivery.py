"""How an answer reaches its client: whether it can be picked up, and whether a gateway in front
continues it elsewhere if this worker dies.

Such a gateway, the relay, sends the header X-Relay: the answer's name and when it was created. The
events then hold marks which tell the tokens that they are made of. To go on elsewhere the relay
puts in front of the body what its client has, as JSON of X-Relay-Written bytes.
"""

from __future__ import annotations

import re
import time
import uuid

import msgspec

from worker.api.intake.body import HttpRequest, written_before
from worker.errors import RequestError
from worker.http.connections import INNER
from worker.requests.record import current_owner
from worker.settings import Settings

RESUME, RELAY, WRITTEN = "x-resume", "x-relay", "x-relay-written"
_RELAYED = re.compile(r"([0-9a-f]{32}) ([0-9]{1,12})")


class ToldBefore(msgspec.Struct, frozen=True):
    """What the client of an answer has of it already.

    events  how many
    tokens  of each sequence that has some, by its number
    places  of their samplers, where that counts
    steps   that the tokens were computed in, one entry a token, where that counts, see `Replay`
    """

    events: int = 0
    tokens: dict[int, tuple[int, ...]] = {}
    places: dict[int, tuple[float, ...]] = {}
    steps: dict[int, tuple[int | None, ...]] = {}


class Relay(msgspec.Struct, frozen=True):
    """Of an answer that can go on at another worker.

    name     the same at each of them
    created  when it was asked for, in seconds since the epoch
    """

    name: str
    created: int
    told: ToldBefore = ToldBefore()


class Delivery(msgspec.Struct, frozen=True):
    """
    resumes  its client may leave and come back
    owner    who may pick it up
    relay    None: it ends with this worker
    """

    resumes: bool = False
    owner: str = ""
    relay: Relay | None = None


DIRECT = Delivery()


def delivery_of(request: HttpRequest, settings: Settings, *, background: bool) -> Delivery:
    """As the headers say, as far as this worker does so. Raises RequestError.

    What is kept here ends with this worker: its readers come and go, and marks are for one of them.
    A background answer that is written down is its own relay.
    """
    headers = request.headers
    asked = headers.get(RESUME)
    resumes = settings.resume_seconds > 0 and (asked or "").lower() in ("on", "1", "true")
    relay, is_inner = None, INNER in request.scope
    is_relayed = settings.relayed and not (resumes or background)
    if RELAY in headers and (is_relayed or is_inner):
        relay = _relay_of(request, headers[RELAY])
    elif background and settings.state_dir is not None:
        relay = Relay(uuid.uuid4().hex, int(time.time()))
    return Delivery(resumes, current_owner(), relay)


def _relay_of(request: HttpRequest, text: str) -> Relay:
    found = _RELAYED.fullmatch(text)
    if found is None:
        raise RequestError("X-Relay must be a name of 32 digits and a time.")
    try:
        told = msgspec.json.decode(written_before(request) or b"{}", type=ToldBefore)
    except msgspec.DecodeError as error:
        raise RequestError(f"The beginning of this answer cannot be read: {error}.") from None
    return Relay(found[1], int(found[2]), told)
