"""TLS of the addresses that are no files: the certificate, its key, and both again at SIGHUP."""

from __future__ import annotations

import ssl
from pathlib import Path

from worker import log
from worker.errors import UsageError

_CERTIFICATE, _KEY = "--ssl-cert-file", "--ssl-key-file"


class Certificate:
    """A certificate, perhaps with those that vouch for it, and its key.

    context  for connections that begin now; those that are there keep theirs
    """

    def __init__(self, certificate: str, key: str) -> None:
        """Paths of PEM files. Raises UsageError."""
        self._paths = (certificate, key)
        self.context = _context(certificate, key)

    def read_again(self) -> None:
        """Take what the files hold now. A pair that cannot be used changes nothing."""
        try:
            self.context = _context(*self._paths)
        except UsageError as error:
            log.get("tls").warning("the certificate stays as it was", reason=error.message)
        else:
            log.get("tls").info("the certificate was read again")


def _context(certificate: str, key: str) -> ssl.SSLContext:
    """Raises UsageError. Python's own errors name neither the file nor what is wrong with it."""
    for option, path in ((_CERTIFICATE, certificate), (_KEY, key)):
        _check_file(option, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
    except ssl.SSLError:
        raise _unusable(_CERTIFICATE, certificate, "it holds no certificate as PEM") from None
    try:
        context.load_cert_chain(certificate, key, _refuse_to_ask)
    except _EncryptedKeyError:
        raise UsageError(
            f"{_KEY} {key} is encrypted.",
            hint="Write it without its passphrase: openssl pkey -in KEY -out PLAIN.",
        ) from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"it does not belong to the certificate in {certificate}"
        elif error.library == "PEM" or not error.reason:
            why = "it holds no private key as PEM"
        else:
            why = f"OpenSSL says {error.reason} about it and its certificate"
        raise _unusable(_KEY, key, why) from None
    return context


def _check_file(option: str, path: str) -> None:
    """A pipe could not be read again, and Python reads a certificate twice."""
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise _unusable(option, path, str(error.strerror)) from None
    if not Path(path).is_file():
        raise _unusable(option, path, "it is no regular file")


class _EncryptedKeyError(Exception):
    """OpenSSL would ask the terminal for a passphrase."""


def _refuse_to_ask() -> str:
    raise _EncryptedKeyError


def _unusable(option: str, path: str, why: str) -> UsageError:
    return UsageError(f"{option} {path} cannot be used: {why}.", hint="Name another file.")
