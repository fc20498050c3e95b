"""--sandbox: what gets into the process does not get out of it, and all that it is for works."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.media.asked import question, said
from tests.support import http
from tests.support.certificates import certificate, needs_openssl
from tests.support.models import ggufs
from tests.support.models.projectors import write_llava
from tests.support.programs.managers import accepts, manager
from tests.support.programs.processes import Server, ended, serving
from worker.errors import UsageError
from worker.isolation import sandbox
from worker.isolation.reach import SandboxReach, reach_of
from worker.keys import key_file
from worker.lifecycle.prepared import check_build
from worker.llama import library
from worker.model.calibration import calibration_path
from worker.settings import Settings

needs_landlock = pytest.mark.skipif(
    sandbox.version() < sandbox.NEEDED, reason="no Landlock with rules for TCP (Linux 6.7)"
)


@contextlib.contextmanager
def port() -> Generator[int]:
    """Where somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


@contextlib.contextmanager
def named() -> Generator[str]:
    """A socket without a file."""
    name = f"gguf-worker-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("\0" + name)
        sock.listen()
        yield name


def tried(server: Server) -> list[str | None]:
    """What came of the probes, at the first step."""
    assert server.post({"prompt": "a", "max_tokens": 2}).status_code == 200
    return server.wait_for("escaped")["found"]


@needs_landlock
def test_nothing_else_is_reached(tiny: Path, tmp_path: Path) -> None:
    """The thread that computes cannot read, write, start, signal, connect or listen elsewhere. The
    same worker without the option can do all of it."""
    model = Path(shutil.copy(tiny, tmp_path / "model.gguf"))
    neighbour = Path(shutil.copy(tiny, tmp_path / "neighbour.gguf"))
    cache, other = tmp_path / "cache", tmp_path / "other"
    for folder in (cache, other):
        folder.mkdir()
        (folder / "file").write_text("here")
    program = shutil.which("true")
    with manager(accepts) as boss, port() as elsewhere, named() as name:
        inside: list[list[Any]] = [
            ["read", str(model)], ["read", str(cache / "file")], ["write", str(cache / "new")],
            ["rename", str(cache / "new"), str(cache / "newer")], ["connect", boss.port],
            ["read", "/proc/self/status"],
        ]  # fmt: skip
        outside: list[list[Any]] = [
            ["read", "/etc/passwd"], ["read", str(neighbour)], ["read", str(other / "file")],
            ["read", f"/proc/{os.getpid()}/environ"], ["list", str(tmp_path)], ["list", "/"],
            ["append", str(model)], ["write", str(other / "new")], ["append", str(other / "file")],
            ["append", str(Path(sandbox.__file__))],
            ["rename", str(cache / "newer"), str(other / "newer")],
            ["link", str(other / "file"), str(cache / "link")],
            ["symlink", str(cache / "symlink"), str(other / "file")],
            ["mkdir", str(other / "folder")], ["connect", elsewhere], ["listen", elsewhere + 1],
            ["connect_by_name", name], ["start", program], ["start_after_fork", program],
            ["signal", os.getpid(), 0],
        ]  # fmt: skip
        options: list[str | Path] = [
            "--model", model, "-t", "1", "--cache-dir", cache, "--callback-url", boss.url,
        ]  # fmt: skip
        # One thread for numpy, as `worker/__main__.py` says.
        env = {"PROBES": json.dumps(inside + outside), "OPENBLAS_NUM_THREADS": "1"}
        module = "tests.support.programs.escaping"
        with serving(*options, "--sandbox", env=env, module=module) as server:
            found = tried(server)
        assert found[: len(inside)] == [None] * len(inside)
        refused = dict(zip(map(str, outside), found[len(inside) :], strict=True))
        assert {probe: code for probe, code in refused.items()
                if code not in ("EACCES", "EPERM", "EXDEV")} == {}  # fmt: skip
        free = [probe for probe in outside if probe[0] not in ("append", "listen")]
        env = {"PROBES": json.dumps(inside + free)}
        with serving(*options, env=env, module=module) as server:
            assert tried(server) == [None] * (len(inside) + len(free))


@needs_landlock
def test_all_that_it_is_for(tiny: Path, tmp_path: Path) -> None:
    """Inside of its bounds a worker calls its manager, reads its keys again, writes conversations
    and finds them again, and answers on all paths. A key file that another one replaced cannot be
    read."""
    keys, cache = tmp_path / "keys", tmp_path / "made" / "by-it"
    keys.write_text("before\n")
    body = {"prompt": [1, *range(5, 200)], "max_tokens": 4, "temperature": 0}

    def asked(server: Server, path: str, key: str, **more: Any) -> Any:
        headers = {"authorization": f"Bearer {key}"}
        return http.request("POST" if more else "GET", server.url + path, headers=headers, **more)

    with manager(accepts) as boss:
        options: tuple[str | Path, ...] = (
            "--sandbox", "-t", "1", "--ctx-size", "1024", "--api-key-file", keys,
            "--cache-dir", cache, "--callback-url", boss.url + "/ready",
            "--heartbeat-url", boss.url + "/beat", "--heartbeat-interval", "0.1",
            "--die-with-parent", "process",
        )  # fmt: skip
        with serving(*options) as server:
            assert boss.wait_for(3)[0]["model_ref"].endswith("gguf")
            assert boss.paths[:2] == ["/ready", "/beat"]
            keys.write_text("after\n")
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("the keys were read again")
            assert asked(server, "/info", "before").status_code == 401
            for path in ("/openapi.json", "/metrics", "/props", "/slots", "/v1/requests"):
                assert asked(server, path, "after").status_code == 200, path
            page = http.get(server.url + "/", headers={"accept": "text/html"})
            assert "</script>" in page.text
            chat = {"messages": [{"role": "user", "content": "What is 3 plus 4?"}]}
            form = {"type": "json_object"}
            for more in ({}, {"response_format": form}):
                sent = {**chat, **more, "max_tokens": 8}
                answer = asked(server, "/v1/chat/completions", "after", json=sent)
                assert answer.status_code == 200, answer.text
            bound = {**body, "grammar": 'root ::= "a"+'}
            assert asked(server, "/v1/completions", "after", json=bound).status_code == 200
            first = asked(server, "/v1/completions", "after", json=body).json()
            server.process.terminate()
            assert server.wait() == 0
        assert list(cache.rglob("*")) != []
        with serving(*options) as server:
            again = asked(server, "/v1/completions", "after", json=body).json()
            assert again["choices"][0]["text"] == first["choices"][0]["text"]
            assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
            # The bounds name files, not names.
            (tmp_path / "new").write_text("never\n")
            (tmp_path / "new").replace(keys)
            server.process.send_signal(signal.SIGHUP)
            assert "cannot be read" in server.wait_for("the keys stay as they were")["reason"]
            assert asked(server, "/info", "after").status_code == 200


@needs_landlock
def test_models_of_several_files(tiny: Path, tmp_path: Path) -> None:
    """A split model is read, and one that guesses, by a link as the Hub's cache has them."""
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    shutil.copy(tiny, blobs / "abc")
    linked = tmp_path / "linked.gguf"
    linked.symlink_to(blobs / "abc")
    parts = ggufs.write_llama(tmp_path / "parts.gguf", splits=3)
    options = ("--model", parts, "--draft-model", linked, "-t", "1", "--sandbox")
    with serving(*options) as server:
        assert server.post({"prompt": "a", "max_tokens": 2}).status_code == 200


@needs_landlock
@needs_openssl
def test_a_socket_and_a_certificate(tiny: Path, tmp_path: Path) -> None:
    """Both addresses answer, the certificate is read again, and the socket is removed at the end.
    No other file of its folder is read; a folder that is missing is the error it always is."""
    path, beside = tmp_path / "sockets" / "worker.sock", tmp_path / "sockets" / "beside"
    path.parent.mkdir()
    beside.touch()
    made = certificate(tmp_path)
    options = (
        "--sandbox", "--model", tiny, "-t", "1", "--host", f"127.0.0.1,unix:{path}",
        "--ssl-cert-file", made[0], "--ssl-key-file", made[1],
    )  # fmt: skip
    env = {"PROBES": json.dumps([["list", str(path.parent)], ["read", str(beside)]])}
    module = "tests.support.programs.escaping"
    with serving(*options, env=env, module=module) as server:
        assert tried(server) == [None, "EACCES"]
        over_file = httpx.Client(transport=httpx.HTTPTransport(uds=str(path)))
        with over_file as client:
            assert client.get("http://localhost/health").json()["status"] == "ok"
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the certificate was read again")
        server.process.terminate()
        assert server.wait() == 0
    assert [each.name for each in path.parent.iterdir()] == ["beside"]
    nowhere = ended("serve", "--sandbox", "--model", tiny, "--host", f"unix:{tmp_path}/no/w.sock")
    assert nowhere.returncode == 3
    assert "/no/w.sock: No such file or directory." in nowhere.stderr


@pytest.mark.parametrize(("version", "said"), [(0, "has none"), (3, "has version 3")])
def test_a_system_without_it(version: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system cannot do it the worker does not start: exit code 2 and one sentence."""
    monkeypatch.setattr(sandbox, "version", lambda: version)
    with pytest.raises(
        UsageError, match=f"^--sandbox needs Landlock .* this system {said}"
    ) as error:
        sandbox.enter(SandboxReach((), (), (), (), 0, ()))
    assert error.value.exit_code == 2


@pytest.mark.parametrize("backend", ["CUDA", "Vulkan", "MTL", "SYCL"])
def test_a_build_for_a_gpu(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its devices would be hidden, and the model would run on the CPU: it does not start."""
    there = library.Build("1", ("CPU", "BLAS", "RPC"), True, True, "", "")
    monkeypatch.setattr(library, "build", lambda: there)
    check_build(Settings(sandbox=True))
    there = library.Build("1", ("CPU", backend), True, False, "", "")
    check_build(Settings())
    with pytest.raises(UsageError, match=f"hides the devices .* {backend.lower()}"):
        check_build(Settings(sandbox=True))


@needs_landlock
@pytest.mark.mtmd
def test_pictures(tmp_path: Path) -> None:
    """The process that reads them is started before, and the projector found."""
    model, _ = write_llava(tmp_path)
    with serving("--model", model, "--ctx-size", "1024", "--sandbox") as server:
        assert said(server, question())


@needs_landlock
def test_threads_that_run_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would not be bound, so the worker does not start."""

    def went_on(_: SandboxReach) -> None:
        pytest.fail("it went on")

    monkeypatch.setattr(sandbox, "_restrict", went_on)
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with pytest.raises(UsageError, match="binds no threads"):
            sandbox.enter(SandboxReach((), (), (), (), 0, ()))
    finally:
        done.set()
        thread.join()


def test_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports and files follow from the settings; the working directory and folders never do."""
    model = tmp_path / "m-00001-of-00002.gguf"
    model.touch()
    (tmp_path / "m-00002-of-00002.gguf").touch()
    measured = calibration_path(model)
    measured.touch()
    (tmp_path / "keys").write_text("k")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = tmp_path / "gguf-worker" / "attention"  # calibrations of kernels
    kept.mkdir(parents=True)
    environ = {"PYTHONPATH": "", "OTEL_EXPORTER_OTLP_ENDPOINT": "https://c.example"}
    settings = Settings(
        port=0, callback_url="http://h/ready", heartbeat_url="https://h:7/", otel=True,
        rpc=("127.0.0.1:50052",), api_key_file=key_file(str(tmp_path / "keys")), cache_dir="c",
    )  # fmt: skip
    reach = reach_of(settings, model, environ)
    assert reach.connects == (7, 80, 443, 50052)
    assert (reach.listens, reach.folders) == (0, ("c",))
    ours = {path for path in reach.reads if path.startswith(str(tmp_path))}
    others = (tmp_path / "m-00002-of-00002.gguf", tmp_path / "keys", measured, kept)
    assert ours == {str(model), *map(str, others)}
    assert not {"/", str(Path.cwd()), str(Path.home()), "/etc", "/proc", "/dev"} & set(reach.reads)
    assert reach_of(Settings(otel=True), model, {}).connects == (4318,)
    bare = reach_of(Settings(callback_url="http://localhost:9999/"), tmp_path, {})
    assert bare.connects == ()
    assert str(tmp_path) not in bare.reads
