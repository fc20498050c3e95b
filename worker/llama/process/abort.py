"""llama.cpp ends the process where one of its assertions does not hold. Here it says why first."""

from __future__ import annotations

import ctypes
import os
import re

from worker.errors import BackendError

# "/a/b/llama.cpp/src/file.cpp:12: GGML_ASSERT(x) failed"
_MESSAGE = re.compile(r"(?:\S*/)?(\S+:\d+): (.*)")
_REPORT = "If a file or a request does that again, SECURITY.md says how to report it."
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


def leave_with_reason(lib: ctypes.CDLL) -> None:
    """From now on an abort is exit code 1 and a last line on stderr instead of a dead process.

    lib: the library with ggml's functions
    """
    lib.ggml_set_abort_callback.restype = ctypes.c_void_p
    lib.ggml_set_abort_callback.argtypes = [_Callback]
    lib.ggml_set_abort_callback(_leave)


@_Callback
def _leave(message: bytes) -> None:
    text = " ".join(message.decode(errors="replace").split())
    found = _MESSAGE.match(text)
    place, why = found.groups() if found else ("", text)
    is_remote = place.startswith("ggml-rpc")
    code = "RPC_SERVER" if is_remote else BackendError.default_code
    hint = "" if is_remote else f" {_REPORT}"
    os.write(2, f"error: {code}: llama.cpp gave up: {why} ({place}).{hint}\n".encode())
    os._exit(BackendError.exit_code)
