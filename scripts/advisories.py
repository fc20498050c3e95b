"""Security advisories that are open for the pins of a lock, as pip's package index reports them.

    python -m scripts.advisories [FILE]

FILE is requirements.lock by default. Exit code 1: an advisory is open; 3: the index did not answer.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from scripts.install.commands import output_of
from scripts.install.lock import LOCK, entries

NOT_KNOWN = "not known: the index has no page of this version"


def index_address() -> str:
    """Of the index that pip is configured for, without `/simple`."""
    text = output_of("env", "COLUMNS=999", sys.executable, "-m", "pip", "download", "--help")
    return re.findall(r"--index-url <url>[^(]*\(default\s+(\S+?)/simple/?\)", text)[0]


def advisories(address: str, pin: tuple[str, str]) -> str:
    """Ids of a pin's open advisories, `none`, or `NOT_KNOWN`. Raises OSError."""
    name, version = pin
    for page in (f"{name}/{version}", name):  # the latter reports on the newest version
        try:
            with urllib.request.urlopen(f"{address}/pypi/{page}/json", timeout=60) as answer:  # noqa: S310
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 404 or page == name:
                raise
            continue
        if found["info"]["version"] == version:
            ids = [each["id"] for each in found["vulnerabilities"] if not each.get("withdrawn")]
            return ", ".join(ids) or "none"
    return NOT_KNOWN


def main(path: Path, address: str) -> int:
    """Print a table, and return the exit code."""
    texts = entries(path.read_text()).items()
    pins = [(name, pin) for name, text in texts for pin in re.findall(r"==([^\s;\\]+)", text)]
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(partial(advisories, address), pins))
    except OSError as error:
        print(f"{address} does not answer ({error}). Check the network, or pip's index-url.")
        return 3
    for (name, version), told in zip(pins, found, strict=True):
        print(f"{name:45} {version:18} {told}")
    unknown, good = found.count(NOT_KNOWN), found.count("none")
    print(f"{len(pins)} pins: {len(pins) - unknown - good} with advisories, {unknown} not known")
    return int(good + unknown < len(pins))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else LOCK, index_address()))
