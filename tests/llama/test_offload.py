"""Offloading to devices that are RPC servers, processes on loopback that compute on the CPU.

What is said of layers, cells and memory holds for every device that is not the host; these are
the ones that each machine has. `make test-offload` installs the build with them and runs this.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support import ggufs
from tests.support.offloaded import PROMPT, TOKENS, FailedLoadError, Loaded, load
from tests.support.processes import Server, WorkerProcess, serving
from tests.support.rpc_server import RpcServer, free_port, rpc_server
from worker import values
from worker.demo import MODEL_PATH
from worker.errors import BackendError, UsageError
from worker.llama import rpc
from worker.llama.library import native
from worker.llama.quantize.target import quantize
from worker.memory.offload import Placement
from worker.settings import Settings

LAYERS = 7  # of the demo model: six blocks and the output
MiB = 2**20
on_rpc = pytest.mark.rpc


@pytest.fixture(scope="module")
def device() -> Generator[RpcServer]:
    """One RPC server, for one process after the other."""
    with rpc_server() as server:
        yield server


@pytest.fixture(scope="module")
def second() -> Generator[RpcServer]:
    """Another one."""
    with rpc_server() as server:
        yield server


@pytest.fixture(scope="module")
def on_cpu() -> Loaded:
    """The demo model without any other device."""
    return load(MODEL_PATH, settings())


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model in Q4_K_M."""
    path = tmp_path_factory.mktemp("models") / "demo-q4_k_m.gguf"
    quantize(MODEL_PATH, path, "Q4_K_M", threads=1)
    return path


def settings(*servers: RpcServer, layers: int = 0, **given: Any) -> Settings:
    """Small, and the same number of threads everywhere."""
    common: dict[str, Any] = {
        "ctx_size": 1024,
        "threads": 1,
        "threads_batch": 1,
        "n_gpu_layers": layers,
    }
    return Settings(rpc=tuple(server.address for server in servers), **{**common, **given})


def words(*servers: RpcServer, layers: int | str) -> list[str]:
    """The same on the command line."""
    addresses = ",".join(server.address for server in servers)
    return ["--rpc", addresses, "-ngl", str(layers), "-c", "1024", "-t", "1", "-tb", "1"]


def by_device(places: Iterable[Placement]) -> dict[str, dict[str, int]]:
    """Bytes of weights, cells and steps of each device; the process's own are no buffers."""
    found: dict[str, dict[str, int]] = {}
    for place in places:
        if place.part not in ("output", "process"):
            parts = found.setdefault(place.device, {})
            parts[place.part] = parts.get(place.part, 0) + place.nbytes
    return found


def assert_planned(planned: Iterable[Placement], allocated: Iterable[Placement]) -> None:
    """The plan of each device is within 5 % of what llama.cpp allocated there, or 0.1 MB where
    that is next to nothing."""
    plan, real = by_device(planned), by_device(allocated)
    assert set(plan) == set(real)
    for name, parts in real.items():
        total = sum(parts.values())
        print(f"{name}: planned {sum(plan[name].values()) / MiB:.2f}, {total / MiB:.2f} MiB")
        assert sum(plan[name].values()) == pytest.approx(total, rel=0.05, abs=1e5), name
        for part in ("weights", "kv"):
            assert plan[name].get(part, 0) == pytest.approx(parts.get(part, 0), rel=0.02, abs=6000)


# ------------------------------------------------------------------------------- placement


@on_rpc
@pytest.mark.parametrize("layers", [0, 1, 3, 6, 7, -1])
def test_layers_land_where_they_were_asked_to(
    device: RpcServer, on_cpu: Loaded, layers: int
) -> None:
    """So many of the last layers, with their cells, are on the device and no other is; the tokens
    are the CPU's and so are the logits, to the bit: the device has the same kernels for F16."""
    loaded = load(MODEL_PATH, settings(device, layers=layers))
    there = LAYERS if layers < 0 else layers
    assert loaded.layers == ("CPU",) * (LAYERS - there) + ("RPC0",) * there
    assert loaded.kv == tuple(enumerate(loaded.layers[:-1]))
    assert set(by_device(loaded.allocated)) == ({"CPU", "RPC0"} if there else {"CPU"})
    assert len(loaded.tokens) == TOKENS
    assert loaded.tokens == on_cpu.tokens
    assert loaded.logits == on_cpu.logits


@on_rpc
def test_quantised_layers_give_the_same_up_to_rounding(device: RpcServer, quantized: Path) -> None:
    """The CPU computes with some encodings in an order of their own, which rounds differently:
    logits differ by little. Without that order they are the same to the bit."""
    everything = settings(device, layers=-1)
    there = load(quantized, everything)
    assert set(there.layers) == {"RPC0"}
    here = load(quantized, settings())
    assert np.argmax(there.logits) == np.argmax(here.logits)
    assert np.abs(np.array(there.logits) - np.array(here.logits)).max() < 0.25
    plain = load(quantized, settings(), plain=True)
    assert (there.logits, there.tokens) == (plain.logits, plain.tokens)


@on_rpc
@pytest.mark.parametrize(
    ("layers", "split", "expected"),
    [
        (-1, (), (0, 4, 3)),
        (-1, (1, 1), (0, 4, 3)),
        (-1, (3, 1), (0, 6, 1)),
        (-1, (0, 1), (0, 0, 7)),
        (4, (1, 1), (3, 2, 2)),
    ],
)
def test_two_devices(
    device: RpcServer,
    second: RpcServer,
    on_cpu: Loaded,
    layers: int,
    split: tuple[float, ...],
    expected: tuple[int, int, int],
) -> None:
    """--tensor-split gives each device its share of layers, in the order of --rpc; the plan knows,
    and the tokens stay the same."""
    loaded = load(MODEL_PATH, settings(device, second, layers=layers, tensor_split=split))
    names = ("CPU", "RPC0", "RPC1")
    assert loaded.layers == sum(
        ((name,) * count for name, count in zip(names, expected, strict=True)), ()
    )
    assert loaded.kv == tuple(enumerate(loaded.layers[:-1]))
    assert_planned(loaded.planned, loaded.allocated)
    assert (loaded.tokens, loaded.logits) == (on_cpu.tokens, on_cpu.logits)


@on_rpc
def test_one_device_of_two(device: RpcServer, second: RpcServer) -> None:
    """--device and --split-mode none leave the others alone."""
    named = load(MODEL_PATH, settings(device, second, layers=-1, device=("RPC1",)))
    assert set(named.layers) == {"RPC1"}
    alone = settings(device, second, layers=-1, split_mode="none", main_gpu=1)
    loaded = load(MODEL_PATH, alone)
    assert set(loaded.layers) == {"RPC1"}
    assert_planned(loaded.planned, loaded.allocated)


# ------------------------------------------------------------------------------- memory


@on_rpc
@pytest.mark.parametrize(
    ("layers", "given"),
    [
        (0, {}),
        (1, {}),
        (2, {}),
        (3, {"ctx_size": 4096}),
        (-1, {"ctx_size": 4096}),
        (-1, {"ctx_size": 2048, "cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
        (-1, {"ctx_size": 8192, "parallel": 16, "ubatch_size": 256}),
        (-1, {"ctx_size": 4096, "mmap": True}),
    ],
)
@pytest.mark.parametrize("name", ["demo", "Q4_K"])
def test_memory_of_each_device(
    device: RpcServer, tmp_path: Path, name: str, layers: int, given: dict[str, Any]
) -> None:
    """What `worker plan` says of a device is within 5 % of what llama.cpp allocates there."""
    path = MODEL_PATH
    if name != "demo":
        shape = {"layers": 6, "embedding": 512, "heads": 8, "kv_heads": 2, "feed_forward": 1536}
        path = ggufs.write_llama(tmp_path / "m.gguf", encoding=name, context=8192, **shape)
    loaded = load(path, settings(device, layers=layers, **given))
    assert_planned(loaded.planned, loaded.allocated)


@on_rpc
def test_plan_on_the_command_line(device: RpcServer) -> None:
    """`worker plan --rpc -ngl` prints the plan that loading follows."""
    loaded = load(MODEL_PATH, settings(device, layers=3))
    command = [sys.executable, "-m", "worker", "plan", "--json", "-c", "1024", "-ngl", "3"]
    done = subprocess.run(
        [*command, "--rpc", device.address], capture_output=True, check=True, timeout=60
    )
    plan = json.loads(done.stdout)
    assert plan["gpu_layers"] == 3
    printed = [Placement(**place) for place in plan["devices"]]
    assert by_device(printed) == by_device(loaded.planned)
    assert_planned(printed, loaded.allocated)


@on_rpc
def test_a_device_that_is_too_small() -> None:
    """Weights that the device has no room for are an error of one sentence, not a slow worker."""
    with rpc_server(megabytes=60) as small, pytest.raises(FailedLoadError) as failed:
        load(MODEL_PATH, settings(small, layers=-1, ctx_size=65_536))
    assert failed.value.code in (1, 4)
    assert re.match(r"error: (MODEL_LOAD_FAILED|DOES_NOT_FIT): .*RPC0.*\.", failed.value.line), (
        failed.value.line
    )


# ------------------------------------------------------------------------------- no fall-back


@on_rpc
@pytest.mark.parametrize(
    ("layers", "tensors"),
    [(-1, r"blk\.4\."), (3, r"blk\.4\."), (-1, r"ffn_(up|down)")],
)
def test_layers_that_stay_on_the_cpu(device: RpcServer, layers: int, tensors: str) -> None:
    """llama.cpp calls a layer offloaded when its tensors were left on the host; we do not."""
    with pytest.raises(FailedLoadError) as failed:
        load(MODEL_PATH, settings(device, layers=layers), keep_on_cpu=tensors)
    assert failed.value.code == 1
    assert re.match(
        r"error: NOT_RESIDENT: \d\.\d MiB of the layers that were to be offloaded stayed on the "
        r"CPU\.",
        failed.value.line,
    ), failed.value.line


@on_rpc
def test_a_tensor_that_stays_on_the_cpu(device: RpcServer, on_cpu: Loaded) -> None:
    """Less than a layer is no reason to stop: it is logged, and the report tells how much."""
    loaded = load(MODEL_PATH, settings(device, layers=-1), keep_on_cpu=r"blk\.2\.ffn_up\.weight")
    everything = load(MODEL_PATH, settings(device, layers=-1))
    more = (by_device(made.allocated)["CPU"]["weights"] for made in (loaded, everything))
    assert next(more) - next(more) == pytest.approx(256 * 768 * 2, abs=11_000)
    assert "tensors of offloaded layers are on the CPU" in loaded.log
    assert "tensors of offloaded layers" not in everything.log
    assert loaded.tokens == on_cpu.tokens


@on_rpc
def test_asserting_the_backend(device: RpcServer) -> None:
    """--backend rpc runs on RPC devices, and without one it does not run at all."""
    assert set(load(MODEL_PATH, settings(device, layers=-1, backend="rpc")).layers) == {"RPC0"}
    with pytest.raises(FailedLoadError) as failed:
        load(MODEL_PATH, settings(layers=-1, backend="rpc"))
    assert failed.value.line.startswith("error: NOT_RESIDENT: This machine has no rpc device.")
    with pytest.raises(FailedLoadError) as failed:
        load(MODEL_PATH, settings(device, layers=-1, backend="cpu"))
    assert failed.value.line.startswith("error: USAGE: --n-gpu-layers needs a GPU")


# ------------------------------------------------------------------------------- the service


def complete(server: Server) -> str:
    """The greedy continuation of the prompt."""
    body = {"prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0}
    answer = server.post(body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


@on_rpc
@pytest.mark.parametrize("layers", ["3", "all"])
def test_the_service_says_where_everything_is(device: RpcServer, layers: str) -> None:
    """The log, /health, /info and /metrics of a worker that runs on the device."""
    there = LAYERS if layers == "all" else int(layers)
    with serving("-c", "1024", "-t", "1", "-tb", "1") as server:
        expected = complete(server)
        without = server.health()["memory_bytes"]
    server = Server(*words(device, layers=layers), "--backend", "rpc")
    try:
        ready = server.wait_for("ready")
        layers_on = {"CPU": LAYERS - there, "RPC0": there}
        cells_on = {"CPU": LAYERS - there, "RPC0": there - 1}
        assert ready["layers"] == {name: n for name, n in layers_on.items() if n}
        assert ready["kv"] == {name: n for name, n in cells_on.items() if n}
        assert set(ready["buffers_mb"]) == {"CPU", "RPC0"}
        assert complete(server) == expected
        health = server.health()
        assert health["status"] == "ok"
        assert health["resident"] is True
        info = httpx.get(server.url + "/info").json()
        assert (info["backend"], info["device"]) == ("rpc", "GPU-0")
        assert info["memory_architecture"] == "vram-only"
        assert info["vram_bytes"] / 1e6 == pytest.approx(ready["buffers_mb"]["RPC0"], abs=0.51)
        metrics = httpx.get(server.url + "/metrics").text
        shown = re.search(r"^worker_vram_bytes\{.*\} (\S+)$", metrics, re.MULTILINE)
        assert shown is not None
        assert float(shown[1]) == info["vram_bytes"] > 3e6
        # Its model is elsewhere, and it is counted with what is held there.
        assert health["memory_bytes"] == pytest.approx(without, rel=0.25)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    finally:
        server.end()


def last_line(worker: WorkerProcess) -> str:
    """What a worker that has ended said last."""
    return [line for line in worker.lines if line][-1]


@on_rpc
def test_a_device_that_dies_in_a_stream() -> None:
    """llama.cpp has no other answer than to end the process: exit code 1 at once, the last line
    says why, and the client's stream is cut, because nothing can run any more."""
    with rpc_server() as device, serving(*words(device, layers="all")) as server:
        body = {"prompt": PROMPT, "max_tokens": 900, "temperature": 0, "ignore_eos": True,
                "stream": True}  # fmt: skip
        with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=30) as answer:
            lines = filter(None, answer.iter_lines())
            for _ in range(5):
                assert json.loads(next(lines).removeprefix("data: "))["choices"]
            device.end()
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                list(lines)
        assert server.wait(10) == 1
        assert re.fullmatch(
            r"error: RPC_SERVER: llama\.cpp gave up: Remote RPC server crashed or returned "
            r"malformed response \(ggml-rpc\.cpp:\d+\)\.",
            last_line(server),
        ), server.lines


@on_rpc
def test_a_device_that_dies_when_idle() -> None:
    """It is noticed by the next request, which gets no answer."""
    with rpc_server() as device, serving(*words(device, layers="all")) as server:
        device.end()
        assert server.health()["status"] == "ok"
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            server.post({"prompt": PROMPT, "max_tokens": 2})
        assert server.wait(10) == 1
        assert last_line(server).startswith("error: RPC_SERVER: ")


@on_rpc
def test_a_stop_after_the_device_died() -> None:
    """The worker leaves in time, and not with 0: it could not free what it had there."""
    with rpc_server() as device, serving(*words(device, layers="all")) as server:
        device.end()
        server.process.send_signal(signal.SIGTERM)
        assert server.wait(5) == 1
        assert last_line(server).startswith("error: RPC_SERVER: ")


@on_rpc
def test_a_server_that_another_worker_uses(device: RpcServer) -> None:
    """An RPC server serves one process at a time; the second is told so and leaves."""
    with serving(*words(device, layers="all")) as first:
        second = WorkerProcess("serve", "--port", "0", *words(device, layers="all"))
        try:
            assert second.wait(30) == 1
            assert "another may be using it" in last_line(second)
        finally:
            second.end()
        assert complete(first)


@on_rpc
def test_a_server_is_free_again(device: RpcServer, on_cpu: Loaded) -> None:
    """A worker that was killed leaves the server to the next."""
    with serving(*words(device, layers="all")) as server:
        server.process.kill()
        server.process.wait(10)
    assert load(MODEL_PATH, settings(device, layers=-1)).tokens == on_cpu.tokens


# ------------------------------------------------------------------------------- no RPC servers

Behaviour = Callable[[socket.socket], None]
HELLO_REQUEST, COUNT_REQUEST = 1 + 8 + 24, 1 + 8
GREETING = struct.pack("<QBBBx24x", 28, 7, 0, 0)


def hello(line: socket.socket) -> None:
    """Answer the greeting."""
    assert len(line.recv(HELLO_REQUEST, socket.MSG_WAITALL)) == HELLO_REQUEST
    line.sendall(GREETING)


def speaks(major: int, minor: int) -> Behaviour:
    """A server of another version."""

    def behave(line: socket.socket) -> None:
        line.recv(HELLO_REQUEST, socket.MSG_WAITALL)
        line.sendall(struct.pack("<QBBBx24x", 28, major, minor, 0))

    return behave


def count(number: int) -> Behaviour:
    """A server that says how many devices it has, and no more."""

    def behave(line: socket.socket) -> None:
        hello(line)
        line.recv(COUNT_REQUEST, socket.MSG_WAITALL)
        line.sendall(struct.pack("<QI", 4, number))
        line.recv(1)

    return behave


def silent(line: socket.socket) -> None:
    """Reads until the other side leaves."""
    while line.recv(4096):
        pass


def closes(line: socket.socket) -> None:
    """Says good-bye at once."""


def says(answer: bytes) -> Behaviour:
    """Answers anything with the same, then is silent."""

    def behave(line: socket.socket) -> None:
        line.recv(4096)
        line.sendall(answer)
        silent(line)

    return behave


def drips(line: socket.socket) -> None:
    """Sends the right answer, so slowly that no byte is late and the whole is."""
    for byte in GREETING:
        line.sendall(bytes([byte]))
        time.sleep(0.05)


@contextmanager
def listening(*behaviours: Behaviour) -> Generator[str]:
    """The address of a server that treats one connection after the other so; the last way stays."""
    with socket.create_server(("127.0.0.1", 0)) as sock:

        def serve() -> None:
            number = 0
            while True:
                try:
                    line, _ = sock.accept()
                except OSError:
                    return
                with line, suppress(OSError):  # the other side may leave
                    behaviours[min(number, len(behaviours) - 1)](line)
                number += 1

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{sock.getsockname()[1]}"
        sock.shutdown(socket.SHUT_RDWR)


HTTP = says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


@on_rpc
@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        (closes, "What listens on {} is no RPC server of llama.cpp."),
        (HTTP, "What listens on {} is no RPC server of llama.cpp."),
        (says(struct.pack("<Q", 2**62)), "What listens on {} is no RPC server of llama.cpp."),
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
        (hello, "What listens on {} is no RPC server of llama.cpp."),
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


# ------------------------------------------------------------------------------- in every build


@pytest.mark.skipif(native.llama_supports_rpc(), reason="this build has the RPC backend")
def test_a_build_without_rpc_refuses() -> None:
    """The option is no wish that can be ignored."""
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
    """Each is refused with what would be right."""
    with pytest.raises(ValueError, match="must name"):
        values.servers(text)


def test_lists_of_servers() -> None:
    """In the given order."""
    assert values.servers("127.0.0.1:50052, gpu-1.lan:1") == ("127.0.0.1:50052", "gpu-1.lan:1")
