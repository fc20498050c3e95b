"""llama.cpp's RPC server: the devices of this machine for a worker on another one.

python -m worker.llama.process.rpc_server HOST:PORT THREADS

serves until its standard input ends, so it leaves with whoever started it. It knows no key and no
encryption, trusts what it reads, and serves one process at a time: a closed net only.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading

from worker import log
from worker.errors import BackendError, UsageError, WorkerError
from worker.llama import library, rpc

_P = ctypes.c_void_p


def serve(address: str, threads: int) -> None:
    """Serve all GPUs of this machine, or its CPU where it has none; it does not return while it
    serves. Raises UsageError on a build without RPC, BackendError where it cannot listen.

    address  HOST:PORT in IPv4
    threads  that compute, on a CPU
    """
    rpc.check_build("an RPC server")
    library.start()
    lib, handles = library.ggml(), library.device_handles()
    names = [device.name for device in library.devices() if device.offloads] or ["CPU"]
    start = lib.ggml_backend_rpc_start_server
    start.argtypes = [
        ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.POINTER(_P),
    ]  # fmt: skip
    start.restype = None
    devices = (_P * len(names))(*(handles[name] for name in names))
    start(address.encode(), None, threads, len(names), devices)
    raise BackendError(f"The RPC server cannot listen on {address}.", code="RPC_SERVER")


def main() -> None:
    """Serve until standard input ends, or leave with the error's code and sentence."""
    log.configure("json")
    address, threads = sys.argv[1:]

    def work() -> None:
        try:
            serve(address, int(threads))
        except WorkerError as error:
            os.write(2, f"error: {error.code}: {error} {error.hint or ''}\n".encode())
            os._exit(error.exit_code)

    threading.Thread(target=work, daemon=True).start()
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(UsageError.exit_code)
    main()
