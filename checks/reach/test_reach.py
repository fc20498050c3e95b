"""No path that a client sends is opened, no address is fetched, nothing is started for it."""

from __future__ import annotations

import copy
import os
import socket
import sys
import sysconfig
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import worker
from tests.support import http
from tests.support.programs.processes import Server, serving
from worker.demo import MODEL_PATH

MARK = "reached-by-a-client"
# What a worker reads while it serves: its own code and Python's, and what the kernel tells of it.
OWN = [
    str(Path(worker.__file__).parent),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(f"{sys.base_prefix}/lib", "/usr/lib", "/lib", "/etc/localtime", "/usr/share/zoneinfo"),
    *("/proc/self", "/proc/meminfo", "/proc/stat", "/sys/fs/cgroup", "/dev/null", "/dev/urandom"),
    "/sys/kernel/mm/transparent_hugepage",
]
NEVER = (
    "socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "http.client",
    "socket.gethostbyname", "subprocess.", "os.exec", "os.posix_spawn", "os.fork", "os.system",
    "urllib.", "os.rename", "os.remove", "os.mkdir", "os.link", "os.symlink", "os.chdir",
)  # fmt: skip


class Bait:
    """A folder with a pipe, at which whoever opens it would wait, and a port at which we listen."""

    def __init__(self, folder: Path) -> None:
        self.pipe = folder / f"{MARK}.gguf"
        os.mkfifo(self.pipe)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/{MARK}"
        self.texts = [
            str(self.pipe),
            f"file://{self.pipe}",
            "../" * 12 + str(self.pipe)[1:],
            self.url,
            f"hf:{MARK}/x@main::file={self.pipe}",
        ]

    def is_untouched(self) -> bool:
        """Whether nobody opened the pipe to read it, nor asked for a connection."""
        try:
            os.close(os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody reads it
            try:
                self.listener.accept()
            except BlockingIOError:
                return True
        return False


@pytest.fixture(scope="module")
def bait(tmp_path_factory: pytest.TempPathFactory) -> Generator[Bait]:
    bait = Bait(tmp_path_factory.mktemp("bait"))
    yield bait
    bait.listener.close()


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "events"


@pytest.fixture(scope="module")
def audited(audit: Path) -> Generator[Server]:
    """The demo model, which can chat, and what its worker reaches for."""
    options = ("-t", "1", "-np", "2", "--ctx-size", "512", "--max-tokens-out", "4")
    program = "tests.support.programs.audited"
    no_bytecode = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": ""}
    with serving(*options, env={"AUDIT": str(audit), **no_bytecode}, module=program) as server:
        yield server


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where texts stand in a JSON value."""
    if isinstance(value, str):
        yield place
    elif isinstance(value, dict):
        for key, inner in value.items():  # type: ignore[misc]
            yield from leaves(inner, (*place, key))  # type: ignore[arg-type]
    elif isinstance(value, list):
        for index, inner in enumerate(value):  # type: ignore[misc]
            yield from leaves(inner, (*place, index))  # type: ignore[arg-type]


def replaced(body: Any, place: tuple[Any, ...], text: object) -> Any:
    """The body with something else at one place."""
    body = copy.deepcopy(body)
    at = body
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = text
    return body


def fields_of(schema: Any, components: Any) -> set[str]:
    """The names of all fields of a body's struct."""
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    inner = [fields_of(part, components) for part in schema.get("allOf", ())]
    return set(schema.get("properties", ())).union(*inner)


def forms_of(types: Any, components: Any, texts: list[str]) -> Iterator[Any]:
    """Each of the texts as a file's name and in each other field of a form."""
    content = types.get("multipart/form-data")
    names = set[str]() if content is None else fields_of(content["schema"], components)
    for text in texts if names else ():
        fields = dict.fromkeys(sorted(names - {"file"}), text)
        yield {"data": fields, "files": {"file": (text, b"RIFF", "audio/wav")}}


def bodies_of(types: Any, components: Any, texts: list[str]) -> Iterator[Any]:
    """Each example of an operation with each of the texts in each of its places and fields."""
    content = types.get("application/json")
    if content is None:
        return
    fields = fields_of(content["schema"], components)
    short = {name: 1 for name in ("max_tokens", "n_predict", "num_predict") if name in fields}
    examples = [example["value"] for example in content["examples"].values()]
    if not isinstance(examples[0], dict):  # a list of numbers, not of names
        yield texts
        return
    for number, example in enumerate(examples):
        example = {**example, **short}
        for place in leaves(example):
            for text in texts[::3] if number == 0 else texts[3:4]:
                yield replaced(example, place, text)
    example: dict[str, Any] = {**examples[0], **short}
    path, url = texts[0], texts[3]
    for name in sorted(fields):
        for value in (path, {"url": url, "path": [path], "$ref": url, "file": path}):
            yield {**example, name: value}


def talks(bait: Bait) -> Iterator[tuple[str, Any]]:
    """Where the APIs do have a place for an address or a file."""
    chat, url, path = "/v1/chat/completions", bait.url, str(bait.pipe)
    said = {"max_tokens": 1, "max_completion_tokens": 1}
    for address in (url, f"file://{path}", path):
        for part in (
            {"type": "image_url", "image_url": {"url": address}},
            {"type": "input_audio", "input_audio": {"data": address, "format": "wav"}},
            {"type": "file", "file": {"file_id": address, "file_data": address}},
            {"type": "video_url", "video_url": {"url": address}},
        ):
            yield chat, {"messages": [{"role": "user", "content": [part]}], **said}
        for schema in ({"$ref": address}, {"$id": address, "$ref": "#/x"}, {"$schema": address}):
            form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
            said_so = {"messages": [{"role": "user", "content": "a"}], **said}
            yield chat, {**said_so, "response_format": form}
            yield chat, {**said_so, "tools": [
                {"type": "function", "function": {"name": "f", "parameters": schema}}
            ]}  # fmt: skip
            yield "/v1/completions", {"prompt": "a", "max_tokens": 1, "json_schema": schema}
        for grammar in (f'%import "{path}"', f'root ::= "{path}"', f'start: "a"\n%import {path}'):
            yield "/v1/completions", {"prompt": "a", "max_tokens": 1, "grammar": grammar}
        template = "{% include '" + path + "' %}{% import '" + path + "' as x %}"
        for key in ("chat_template", "chat_template_kwargs", "template"):
            yield chat, {"messages": [{"role": "user", "content": "a"}], key: template, **said}
        image = {"type": "image", "source": {"type": "url", "url": address}}
        document = {"type": "document", "source": {"type": "file", "file_id": address}}
        for block in (image, document):
            message = {"role": "user", "content": [block]}
            yield "/v1/messages", {"messages": [message], "max_tokens": 1}
        for name in ("input_image", "input_file"):
            part = {"type": name, "image_url": address, "file_url": address, "file_id": address}
            talk = [{"role": "user", "content": [part]}]
            yield "/v1/responses", {"input": talk, "max_output_tokens": 1}
        for route in ("/api/show", "/api/pull", "/api/push", "/api/create", "/api/copy"):
            yield route, {"model": address, "from": address, "source": address, "insecure": True}
        yield "/api/generate", {"prompt": "a", "images": [address], "options": {"num_predict": 1}}


def test_nothing_that_a_client_names_is_reached(audited: Server, audit: Path, bait: Bait) -> None:
    """Each text of each body, path, query and header is a file's name or an address at some time:
    nothing opens it, nothing connects to it, and nothing but the worker's own code is read."""
    begun = audit.read_text().count("\n")
    assert str(MODEL_PATH) in audit.read_text()  # that it notes what is opened
    document = http.get(audited.url + "/openapi.json").json()
    components = document["components"]["schemas"]
    statuses: dict[int, int] = {}

    def ask(method: str, path: str, **more: Any) -> None:
        with http.stream(method, audited.url + path, **more) as answer:
            for _ in answer.iter_bytes():
                pass
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1

    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path.endswith("shutdown"):
                continue
            if "requestBody" in operation:
                content = operation["requestBody"]["content"]
                for body in bodies_of(content, components, bait.texts):
                    ask(method, path, json=body)
                for form in forms_of(content, components, bait.texts):
                    ask(method, path, **form)
            endless = path == "/v1/requests"
            for text in bait.texts[1:4]:
                for name in [field["name"] for field in operation.get("parameters", ())]:
                    asked = "1" if endless else text
                    place = path.replace(f"{{{name}}}", quote(text, safe=""))
                    ask(method, place, params={"interval": text} if endless else {name: asked})
                if not endless:
                    ask(method, path.partition("{")[0] + quote(text, safe="/:"))
    headers = ("referer", "x-forwarded-host", "x-forwarded-for", "forwarded", "origin", "host",
               "traceparent", "x-request-id", "x-correlation-id", "authorization", "accept",
               "content-type", "user-agent", "cookie")  # fmt: skip
    for name in headers:
        for text in bait.texts[:4]:
            ask("POST", "/v1/completions", json={"prompt": "a", "max_tokens": 1},
                headers={name: text})  # fmt: skip
    for path, body in talks(bait):
        ask("POST", path, json=body)

    assert sum(statuses.values()) > 700
    assert statuses[200] > 100
    assert max(statuses) <= 501
    assert 500 not in statuses
    assert audited.health()["status"] == "ok"
    events = audit.read_text().splitlines()[begun:]
    assert bait.is_untouched()
    assert [event for event in events if MARK in event] == []
    assert [event for event in events if event.startswith(NEVER)] == []
    opened = [event.split("'")[1] for event in events if event.startswith("open ('")]
    assert [path for path in opened if not path.startswith(tuple(OWN))] == []
