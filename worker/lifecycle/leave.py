"""The end of the process."""

from __future__ import annotations

import os
import sys
import threading
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """Exit with `code`; at once where a background thread still runs.

    Such a thread (a step or a load that was given up) would be waited for, or would crash beside
    the interpreter's clean-up.
    """
    failed = False
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            failed = failed or stream is sys.stdout
    code = code or int(failed)
    if failed or any(thread.daemon for thread in threading.enumerate()):
        os._exit(code)
    sys.exit(code)
