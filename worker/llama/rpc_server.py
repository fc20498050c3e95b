"""llama.cpp's RPC server: the devices of this machine for a worker on another one.

python -m worker.llama.rpc_server HOST:PORT THREADS GPUS

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
from worker.llama import library, rpc, signatures

_P = ctypes.c_void_p


def serve(address: str, threads: int, gpus: int = 0) -> None:
    """Serve so many GPUs of this machine, or its CPU; it does not return while it serves.

    Raises UsageError on a build without RPC, BackendError where there are fewer GPUs or it cannot
    listen.

    address  HOST:PORT in IPv4
    threads  that compute, on a CPU
    gpus     the first ones that this build sees; 0: the CPU
    """
    rpc.check_build("an RPC server")
    library.start()
    lib, handles = library.ggml(), library.device_handles()
    names = _names(gpus)
    signatures.declare(lib, signatures.RPC)
    start = lib.ggml_backend_rpc_start_server
    devices = (_P * len(names))(*(handles[name] for name in names))
    start(address.encode(), None, threads, len(names), devices)
    raise BackendError(f"The RPC server cannot listen on {address}.", code="RPC_SERVER")


def _names(gpus: int) -> list[str]:
    if not gpus:
        return ["CPU"]
    seen = [device.name for device in library.devices() if device.offloads]
    if len(seen) < gpus:
        raise BackendError(
            f"{gpus} GPUs were to be served, and this build sees {len(seen)} here.",
            hint="Install a build for them: `make install BACKEND=cuda|metal|vulkan RPC=1`.",
            code="RPC_SERVER",
        )
    return seen[:gpus]


def main() -> None:
    """Serve until standard input ends, or leave with the error's code and sentence."""
    log.configure("json")
    address, threads, gpus = sys.argv[1:]

    def work() -> None:
        try:
            serve(address, int(threads), int(gpus))
        except WorkerError as error:
            os.write(2, f"error: {error.code}: {error} {error.hint or ''}\n".encode())
            os._exit(error.exit_code)

    threading.Thread(target=work, daemon=True).start()
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(UsageError.exit_code)
    main()
