"""RPC servers as devices: processes, here or on a machine near by, that compute for this process.

llama.cpp's client ends the process when a server is not there or answers nonsense, and it waits for
ever for a server that says nothing. So each server is first asked here, in Python. A server that
dies later still ends this process, but with exit code 1 and a last line on stderr that says why.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import threading
import time
from collections.abc import Sequence

from worker.errors import BackendError, UsageError
from worker.llama import library, signatures
from worker.llama.library import native

# RPC_PROTO_MAJOR_VERSION and _MINOR_VERSION of ggml-rpc.h in the pinned build.
PROTOCOL = (7, 0)
TIMEOUT_S = 5.0
_HELLO, _DEVICE_COUNT = 14, 15  # enum rpc_cmd
_HELLO_BYTES, _HELLO_ANSWER = 24, struct.Struct("<BBBx24x")
_COUNT_ANSWER = struct.Struct("<I")

_connected: set[tuple[str, int]] = set()


def connect(servers: Sequence[str]) -> None:
    """Add the devices of `servers` (HOST:PORT) to those of this process, until it ends.

    They are named RPC0, RPC1, ... in the order of the servers. One connection to each is kept
    open: a server serves one process at a time, so nobody else gets it.

    Raises UsageError on a build without RPC and for an address of the open Internet, BackendError
    (RPC_SERVER) where no usable server answers.
    """
    if servers:
        check_build("--rpc")
    library.start()
    for server in servers:
        address = _address(server)
        if address not in _connected:
            _register(server, address, _ask(server, address))
            _connected.add(address)


def check_build(what: str) -> None:
    """Raise UsageError for `what` on a build without RPC."""
    if not native.llama_supports_rpc():
        raise UsageError(
            f"{what} needs a build with the RPC backend, and this one has none.",
            hint="Install one with `make install RPC=1`.",
        )


def _address(server: str) -> tuple[str, int]:
    """The IPv4 address of HOST:PORT. llama.cpp cannot use any other kind."""
    host, _, port = server.rpartition(":")
    try:
        found = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UsageError(
            f"--rpc names {server}, whose host is not known.", hint="Give its IPv4 number."
        ) from None
    number = str(found[0][4][0])
    if ipaddress.ip_address(number).is_global:
        raise UsageError(
            f"--rpc names {server}, an address of the open Internet ({number}).",
            hint="An RPC server trusts whoever reaches it: put it behind a tunnel to loopback.",
        )
    return number, int(port)


def _ask(server: str, address: tuple[str, int]) -> int:
    """Ask the server, by llama.cpp's protocol, how many devices it has; at least one."""
    deadline = time.monotonic() + TIMEOUT_S
    try:
        line = socket.create_connection(address, timeout=TIMEOUT_S)
    except OSError as error:
        raise _unusable(
            f"The RPC server {server} cannot be reached: {error.strerror or error}.",
            "Start it, or correct --rpc.",
        ) from None
    try:
        with line:
            major, minor, _ = _call(line, _HELLO, bytes(_HELLO_BYTES), _HELLO_ANSWER, deadline)
            if major != PROTOCOL[0] or minor > PROTOCOL[1]:
                raise _unusable(
                    f"The RPC server {server} speaks protocol {major}.{minor}, and this build "
                    f"{PROTOCOL[0]}.{PROTOCOL[1]}.",
                    "Build both from the same version of llama.cpp.",
                )
            (count,) = _call(line, _DEVICE_COUNT, b"", _COUNT_ANSWER, deadline)
    except TimeoutError:
        raise _silent(server) from None
    except ValueError:
        raise _unusable(
            f"What listens on {server} is no RPC server of llama.cpp.", "Correct --rpc."
        ) from None
    limit = native.llama_max_devices() - len(library.device_handles())
    if not 0 < count <= limit:
        raise _unusable(
            f"The RPC server {server} offers {count} devices, and 1 to {limit} can be used.",
            "Start it with other ones (`--device`).",
        )
    return count


def _call(
    line: socket.socket, command: int, body: bytes, answer: struct.Struct, deadline: float
) -> tuple[int, ...]:
    """One request of the protocol; returns the numbers of the answer.

    A request is the command's byte, the body's length and the body; an answer is its length and its
    body. Raises ValueError for no answer or one of another length, TimeoutError at the deadline.
    """
    try:
        line.sendall(struct.pack("<BQ", command, len(body)) + body)
        (length,) = struct.unpack("<Q", _read(line, 8, deadline))
        if length != answer.size:
            raise ValueError
        return answer.unpack(_read(line, length, deadline))
    except ConnectionError:
        raise ValueError from None


def _read(line: socket.socket, count: int, deadline: float) -> bytes:
    got = b""
    while len(got) < count:
        line.settimeout(max(0.001, deadline - time.monotonic()))
        more = line.recv(count - len(got))
        if not more:
            raise ConnectionError
        got += more
    return got


def _register(server: str, address: tuple[str, int], count: int) -> None:
    """Have llama.cpp connect to the server.

    It runs in a thread that can be left behind: another process may have got the server since it
    was asked, and llama.cpp waits until that process leaves.
    """
    lib = library.ggml()
    signatures.declare(lib, signatures.RPC)

    def work() -> None:
        endpoint = f"{address[0]}:{address[1]}".encode()
        lib.ggml_backend_rpc_init(endpoint, 0)  # never freed: it holds the connection
        group = lib.ggml_backend_rpc_add_server(endpoint)
        for index in range(lib.ggml_backend_reg_dev_count(group)):
            lib.ggml_backend_device_register(lib.ggml_backend_reg_dev_get(group, index))

    before = len(library.device_handles())
    thread = threading.Thread(target=work, name="rpc", daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    if thread.is_alive():
        raise _silent(server)
    if len(library.device_handles()) != before + count:
        raise _unusable(f"The RPC server {server} now has other devices.", "Try again.")


def _silent(server: str) -> BackendError:
    return _unusable(
        f"The RPC server {server} takes connections and says nothing for {TIMEOUT_S:.0f} seconds.",
        "It serves one process at a time: another may be using it.",
    )


def _unusable(message: str, hint: str) -> BackendError:
    return BackendError(message, hint=hint, code="RPC_SERVER")
