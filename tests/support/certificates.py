"""Certificates for servers on loopback, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificate"
)


def certificate(
    folder: Path, name: str = "localhost", *, passphrase: str = ""
) -> tuple[Path, Path]:
    """PEM files of one that vouches for itself, for localhost and 127.0.0.1, and of its key.

    passphrase: that the key is encrypted with
    """
    made, key = folder / f"{name}.pem", folder / f"{name}.key"
    locked = ["-passout", f"pass:{passphrase}"] if passphrase else ["-nodes"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         *locked, "-keyout", key, "-out", made, "-subj", f"/CN={name}",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key
