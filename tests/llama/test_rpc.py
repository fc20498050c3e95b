"""Addresses of RPC servers: a server that is none is refused before native code sees it."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from tests.support.programs.offloaded import (
    FailedLoadError,
    last_line,
    load,
)
from tests.support.programs.processes import WorkerProcess
from tests.support.programs.rpc_impostors import (
    HTTP,
    Behaviour,
    closes,
    count,
    drips,
    hello,
    listening,
    says,
    silent,
    speaks,
)
from tests.support.programs.rpc_server import free_port
from worker import values
from worker.demo import MODEL_PATH
from worker.errors import BackendError, UsageError
from worker.llama import rpc
from worker.llama.library import native
from worker.settings import Settings

on_rpc = pytest.mark.rpc


@on_rpc
@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        (closes, "The server at {} is not an RPC server of llama.cpp."),
        (HTTP, "The server at {} is not an RPC server of llama.cpp."),
        (says(struct.pack("<Q", 2**62)), "The server at {} is not an RPC server of llama.cpp."),
        (silent, "The RPC server {} takes connections and says nothing for 1 seconds."),
        (drips, "The RPC server {} takes connections and says nothing for 1 seconds."),
        (
            speaks(6, 2),
            "The RPC server {} speaks protocol 6.2, and this build 7.0.",
        ),
        (
            speaks(7, 1),
            "The RPC server {} speaks protocol 7.1, and this build 7.0.",
        ),
        (count(0), "The RPC server {} offers 0 devices, and 1 to 15 can be used."),
        (count(2**32 - 1), "The RPC server {} offers 4294967295 devices, and 1 to 15 can be used."),
        (hello, "The server at {} is not an RPC server of llama.cpp."),
    ],
    ids=["closes", "http", "huge", "silent", "drips", "older", "newer", "none", "many", "cut"],
)
def test_what_is_no_usable_server(
    monkeypatch: pytest.MonkeyPatch, behaviour: Behaviour, sentence: str
) -> None:
    """One sentence and code 1, before native code has seen it and in bounded time."""
    monkeypatch.setattr(rpc, "TIMEOUT_S", 1.0)
    with listening(behaviour) as address, pytest.raises(BackendError) as refused:
        rpc.connect([address])
    assert refused.value.message == sentence.format(address)
    assert (refused.value.code, refused.value.exit_code) == ("RPC_SERVER", 1)
    assert refused.value.hint


@on_rpc
def test_a_server_that_is_not_there() -> None:
    """The service leaves with 1 and the reason."""
    address = f"127.0.0.1:{free_port()}"
    worker = WorkerProcess("serve", "--port", "0", "--rpc", address)
    try:
        assert worker.wait() == 1
        assert last_line(worker) == (
            f"error: RPC_SERVER: The RPC server {address} cannot be reached: Connection refused. "
            "Start it, or correct --rpc."
        )
    finally:
        worker.end()


@on_rpc
@pytest.mark.parametrize(
    ("then", "sentence"),
    [
        (silent, "takes connections and says nothing for 5 seconds"),
        (closes, "llama.cpp gave up: Remote RPC server crashed"),
        (speaks(6, 0), "llama.cpp gave up: RPC handshake failed"),
    ],
    ids=["silent", "closes", "older"],
)
def test_a_server_that_changes_its_mind(then: Behaviour, sentence: str) -> None:
    """Answers what we ask and not what llama.cpp asks: still exit code 1 and one sentence, also
    where native code would wait for ever or abort."""
    with listening(count(1), then) as address, pytest.raises(FailedLoadError) as failed:
        load(MODEL_PATH, Settings(rpc=(address,), ctx_size=512))
    assert failed.value.code == 1
    assert failed.value.line.startswith("error: RPC_SERVER: ")
    assert sentence in failed.value.line


@on_rpc
@pytest.mark.parametrize(
    ("server", "why"),
    [("8.8.8.8:50052", "open Internet"), ("host.invalid:50052", "whose host is not known")],
)
def test_addresses_that_are_refused(server: str, why: str) -> None:
    """Nothing is sent to the open Internet, and unknown hosts are named."""
    with pytest.raises(UsageError, match=why):
        rpc.connect([server])


@pytest.mark.skipif(native.llama_supports_rpc(), reason="this build has the RPC backend")
def test_a_build_without_rpc_refuses() -> None:
    """A build without RPC refuses the option instead of ignoring it."""
    worker = WorkerProcess("serve", "--port", "0", "--rpc", "127.0.0.1:50052")
    try:
        assert worker.wait() == 2
        assert last_line(worker) == (
            "error: USAGE: --rpc needs a build with the RPC backend, and this one has none. "
            "Install one with `make install RPC=1`."
        )
    finally:
        worker.end()


def test_the_protocol_is_the_library_s() -> None:
    """The version that servers are asked for is the one in the installed library's header."""
    header = Path(native.__file__).parent / "include" / "ggml-rpc.h"
    found = dict(re.findall(r"#define RPC_PROTO_(\w+)_VERSION\s+(\d+)", header.read_text()))
    assert (int(found["MAJOR"]), int(found["MINOR"])) == rpc.PROTOCOL


@pytest.mark.parametrize(
    "text",
    ["", ",", "host", "host:", ":50052", "host:0", "host:65536", "host:x", "[::1]:50052",
     "a:1,a:1", "a b:1", "a:1;b:2", "http://a:1"],
)  # fmt: skip
def test_lists_of_servers_that_are_wrong(text: str) -> None:
    """Each wrong list is refused with a sentence about the right form."""
    with pytest.raises(ValueError, match="must name"):
        values.servers(text)


def test_lists_of_servers() -> None:
    """A list is read in the order in which it was given."""
    assert values.servers("127.0.0.1:50052, gpu-1.lan:1") == ("127.0.0.1:50052", "gpu-1.lan:1")
