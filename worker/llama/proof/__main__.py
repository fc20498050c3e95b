"""Proves now and says what was found: `python -m worker.llama.proof [--json]`.

Exit code 0 where llama.cpp is sound on this CPU, else 1.
"""

from __future__ import annotations

import sys

import msgspec

from worker import log
from worker.errors import WorkerError
from worker.llama import soundness


def main() -> int:
    """Print the verdict, as JSON or as a sentence; a failure's last line is on standard error."""
    log.configure("console", "error")
    try:
        key, found = soundness.anew()
        if "--json" in sys.argv[1:]:
            print(msgspec.json.encode({"key": key, "found": found}).decode())  # noqa: T201
            return 0 if found.is_sound else 1
        found.require()
    except WorkerError as error:
        log.say(f"error: {error.code}: {error}\n")
        return error.exit_code
    print(found)  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
