"""Pictures and sounds that a request names by an address: which are read, and how."""

from __future__ import annotations

import ipaddress
import os
import stat
import time
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from worker.errors import RequestError
from worker.lifecycle.http_client import Place, get, place_of, without_query
from worker.limits import FETCH_TIME, FETCHED
from worker.settings import Settings

_PORTS = {"http": 80, "https": 443}
_REDIRECTS = 3
# IPv6 addresses in which one of IPv4 stands, which a gateway may lead to.
_EMBEDDING = [ipaddress.IPv6Network(each) for each in ("64:ff9b::/96", "2002::/16", "2001::/32")]


class MediaAddresses:
    """Those of one request. One thread at a time reads them."""

    def __init__(self, settings: Settings) -> None:
        self._hosts = frozenset(settings.fetch_images)
        self._folder = settings.media_dir
        self._read: dict[str, bytes | RequestError] = {}
        self._left = FETCHED.most * 1_000_000
        self._until = 0.0

    def allows(self, address: str) -> bool:
        """Whether the settings do."""
        try:
            parts = urlsplit(address)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        if parts.scheme == "file":
            return self._folder is not None
        usual = _PORTS.get(parts.scheme)
        port = port or usual
        return usual is not None and (
            (host, port) in self._hosts or (port == usual and (host, 0) in self._hosts)
        )

    def knows(self, address: str) -> bool:
        """Whether it was read already."""
        return address in self._read

    def read(self, address: str) -> bytes:
        """The bytes at one that is allowed; blocks. Raises RequestError, each time."""
        if address not in self._read:
            self._until = self._until or time.monotonic() + FETCH_TIME.most
            try:
                is_file = urlsplit(address).scheme == "file"
                data = self._file(address) if is_file else self._fetch(address)
                self._left -= len(data)
                if self._left < 0:
                    self._left = 0
                    raise _unreadable(address, f"more than {FETCHED.most} MB were fetched")
                self._read[address] = data
            except RequestError as error:
                self._read[address] = error
        found = self._read[address]
        if isinstance(found, RequestError):
            raise found
        return found

    def _fetch(self, address: str) -> bytes:
        url = address
        for _ in range(_REDIRECTS + 1):
            try:
                place = place_of(url)
                _check_public(place, address)
                answer = get(place, self._left, self._until - time.monotonic())
            except (OSError, ValueError) as error:
                reason = error.args[-1] if error.args else type(error).__name__
                raise _unreadable(address, str(reason)) from None
            if answer.status == 200:
                return answer.body
            if answer.status not in (301, 302, 303, 307, 308):
                raise _unreadable(address, f"the answer is {answer.status}")
            url = urljoin(url, answer.location)
            if urlsplit(url).scheme == "file" or not self.allows(url):
                raise _unreadable(address, "it leads to another host")
        raise _unreadable(address, "it leads on and on")

    def _file(self, address: str) -> bytes:
        assert self._folder is not None
        folder = Path(self._folder)
        try:
            path = (folder / unquote(address[len("file://") :])).resolve()
            if not path.is_relative_to(folder):
                raise _unreadable(address, "it is not below the folder of --media-dir")
            with open(path, "rb", opener=_open) as file:
                return file.read(self._left + 1)
        except (OSError, ValueError, RuntimeError):
            raise _unreadable(address, "there is no such file") from None


def _open(path: str, flags: int) -> int:
    """A regular file, not by a link, and without waiting. Raises OSError."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise FileNotFoundError(path)
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _check_public(place: Place, address: str) -> None:
    """Raise RequestError where the host's name leads into a private network."""
    for found in place.addresses:
        number = ipaddress.ip_address(found[4][0].partition("%")[0])
        number = getattr(number, "ipv4_mapped", None) or number
        hidden = any(number in network for network in _EMBEDDING)
        is_public = number.is_global and not number.is_multicast and not hidden
        if not is_public and place.host != found[4][0]:
            raise _unreadable(
                address, f"{place.host} leads to {number}, which is no public address"
            )


def _unreadable(address: str, why: str) -> RequestError:
    return RequestError(f"{without_query(address)[:200]} cannot be read: {why}.", code="bad_medium")
