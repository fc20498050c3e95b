"""What the command line says once for all requests, and what it adds to paths and addresses."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

import pytest

from tests.support import http
from tests.support.models.infilling import write_infilling
from tests.support.programs.processes import Server, serving
from worker.llama import library
from worker.model.calibration import PROMPT_VERSION

CHAT = [{"role": "user", "content": "hi"}]
COUNT = 3
# Path -> (body without a limit, the field of one, where the answer tells how many tokens it has)
APIS: dict[str, tuple[dict[str, Any], str, Callable[[Any], int]]] = {
    "/v1/completions": (
        {"prompt": "a"}, "max_tokens", lambda told: told["usage"]["completion_tokens"],
    ),
    "/v1/chat/completions": (
        {"messages": CHAT}, "max_completion_tokens",
        lambda told: told["usage"]["completion_tokens"],
    ),
    "/v1/responses": (
        {"input": "hi"}, "max_output_tokens", lambda told: told["usage"]["output_tokens"],
    ),
    "/api/chat": (
        {"messages": CHAT, "stream": False}, "num_predict", lambda told: told["eval_count"],
    ),
    "/infill": (
        {"input_prefix": "a", "input_suffix": "b"}, "n_predict",
        lambda told: told["tokens_predicted"],
    ),
    "/v1/infer": ({"prompt": "a"}, "max_tokens", lambda told: told["tokens_generated"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """One worker with all of it."""
    folder = tmp_path_factory.mktemp("wishes")
    words = (
        f"-n {COUNT} --ignore-eos --temp 0.9 --seed 7 --top-k 40 --chat-template chatml "
        "-ngl 99 --host 127.0.0.1,127.0.0.2 --api-prefix /llm --cors localhost "
        "--samplers top_k;temperature --top-p 0.5 -t 1 --decisions texts --decisions-orders 3"
    )
    log = folder / "worker.log"
    with serving(
        "--model", write_infilling(folder), "--log-file", log, *words.split()
    ) as running:  # fmt: skip
        yield running
        told = [json.loads(line) for line in log.read_text().splitlines()]
        assert {"listening", "ready", "request"} <= {line["event"] for line in told}


@pytest.mark.parametrize("path", APIS)
def test_each_api_has_the_operators_defaults(server: Server, path: str) -> None:
    """The length and the seed are theirs where a request says nothing, else the request's."""
    body, field, count = APIS[path]
    first, second = (server.post(body, path).json() for _ in range(2))
    assert count(first) == COUNT
    own = {"options": {field: COUNT + 2}} if path == "/api/chat" else {field: COUNT + 2}
    assert count(server.post({**body, **own}, path).json()) == COUNT + 2
    if path == "/v1/completions":
        assert first["choices"] == second["choices"]
        others = [server.post({**body, "seed": seed}, path).json() for seed in range(8)]
        assert any(other["choices"] != first["choices"] for other in others)


def test_what_counts_is_told(server: Server) -> None:
    """Options count before the file; samplers that are not named are off for requests only."""
    params = http.get(server.url + "/props").json()["default_generation_settings"]["params"]
    assert (params["temperature"], params["top_k"], params["seed"]) == (0.9, 40, 7)
    assert params["samplers"] == ["top_k", "temperature"]


def test_decisions_are_read_as_the_operator_says(server: Server) -> None:
    """The mode and the number of orders are theirs, and /props tells both with the version of the
    prompts."""
    told = http.get(server.url + "/props").json()["decisions"]
    assert told == {"prompt_version": PROMPT_VERSION, "mode": "texts", "orders": 3}
    asked = {"type": "choice", "choices": [{"value": value} for value in ("a", "b", "c")]}
    body = {"model": "m", "input": "a", "questions": [{**asked, "instructions": "Which?"}]}
    (answer,) = server.post(body, "/v1/decisions").json()["answers"]
    assert answer["diagnostics"]["mode"] == "texts"
    assert answer["diagnostics"]["orders"] == 3


def test_a_path_behind_the_prefix_is_the_path(server: Server) -> None:
    """All paths are found behind it, ids with slashes too; a longer name is another path."""
    for path in ("/health", "/v1/models", "/v1/models/demo-5m-f16"):
        assert http.get(f"{server.url}/llm{path}").json().keys() == http.get(
            server.url + path
        ).json().keys()  # fmt: skip
    assert server.post({"prompt": "a"}, "/llm/v1/completions").status_code == 200
    assert server.post({}, "/llm/v1/requests/a%2Fb/cancel").json()["error"]["code"] == (
        "request_not_found"
    )
    assert http.get(server.url + "/llmore/health").status_code == 404


def test_pages_of_this_machine_may_read(server: Server) -> None:
    """Whatever their port; no others."""
    for origin, may in {
        "http://localhost:3000": True, "https://127.0.0.1": True, "http://[::1]:1": True,
        "https://localhost.example": False, "null": False,
    }.items():  # fmt: skip
        answer = http.get(server.url + "/health", headers={"origin": origin})
        assert (answer.headers.get("access-control-allow-origin") == origin) is may


def test_a_build_without_a_gpu_takes_all_layers(server: Server) -> None:
    """Lines that are copied say `-ngl 99`; where there is no GPU in the build, the log says so."""
    if {name.lower() for name in library.build().backends} - {"cpu", "blas"}:
        pytest.skip("this build has a GPU")
    said = "this build knows no GPU: all layers are computed on the CPU"
    assert server.logged(said)["level"] == "warning"


def test_several_addresses(server: Server) -> None:
    """One port at each."""
    other = server.url.replace("127.0.0.1", "127.0.0.2")
    assert http.get(other + "/health").status_code == 200
