"""What managers, routers and llama-server's callers ask about the worker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.programs.processes import Server, serving
from worker import __version__

LONG = {"prompt": "Hello", "max_tokens": 1_900, "ignore_eos": True, "stream": True}


def get(server: Server, path: str) -> Any:
    answer = http.get(server.url + path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def test_info(server: Server) -> None:
    """/info has the fields that managers read, and they are true."""
    info = get(server, "/info")
    assert info["model_id"] == "org/tiny"
    assert info["id"]
    assert info["port"] == int(server.url.rsplit(":", 1)[1])
    assert (info["status"], info["device"], info["backend"]) == ("ready", "CPU-0", "cpu")
    assert (info["implementation"], info["version"]) == ("gguf-worker", __version__)
    assert (info["quant_kind"], info["vocab_size"], info["context_length"]) == ("F32", 320, 2048)
    assert (info["threads"], info["threads_batch"]) == (1, 1)
    assert info["attention"] in ("fused", "plain")
    assert (info["memory_architecture"], info["vram_bytes"]) == ("unified", 0)
    assert info["memory_bytes"] > 10e6
    assert info["pid"] == server.process.pid
    assert info["max_tokens_out"] == 2048
    assert info["model_ref"] is None


def test_what_the_manager_gave(tiny: Path) -> None:
    """/info repeats the ids that the manager gave, and says busy when no slot is free."""
    with serving(
        "--model", tiny, "-np", "1", "-c", "2048", "--worker-id", "w-7", "--model-ref", "hf:a/b",
        "--max-tokens-out", "100", "-t", "1", step_seconds=0.02,
    ) as server:  # fmt: skip
        info = get(server, "/info")
        assert (info["id"], info["model_ref"], info["slots"]) == ("w-7", "hf:a/b", 1)
        url = server.url + "/v1/completions"
        with http.stream("POST", url, json=LONG) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert get(server, "/info")["status"] == "busy"
        server.wait_until(slots_processing=0)
        assert get(server, "/info")["status"] == "ready"
        assert info["max_tokens_out"] == 100
        refused = server.post({"prompt": "a", "max_tokens": 101}, "/execute")
        assert refused.json()["error"]["param"] == "max_tokens"


def test_version_and_sleep(server: Server) -> None:
    """/version and /is_sleeping answer as vLLM's routers expect."""
    assert get(server, "/version") == {"version": __version__}
    assert get(server, "/is_sleeping") == {"is_sleeping": False}


def test_open_inference_protocol(server: Server) -> None:
    """KServe's probes get 200: live, ready, and the model by its id."""
    assert get(server, "/v2/health/live")["status"] == "ok"
    assert get(server, "/v2/models/org/tiny/ready") == {"name": "org/tiny", "ready": True}
    for path in ("/v2/models/other/ready", "/v2/models/org/tiny", "/v2/models/ready"):
        answer = http.get(server.url + path)
        assert answer.status_code == 404
        assert answer.json()["error"]["type"] == "not_found_error"


def test_props(server: Server) -> None:
    """llama-server's callers find the model, its context, slots and template."""
    props = get(server, "/props")
    assert props["total_slots"] == 4
    assert props["model_alias"] == "org/tiny"
    assert Path(props["model_path"]).name == "tiny.gguf"
    assert (props["bos_token"], props["eos_token"]) == ("<s>", "</s>")
    assert props["chat_template"]
    assert props["chat_template_caps"]["supports_tools"] is True
    assert props["chat_template_caps"]["supports_reasoning_effort"] is False
    assert props["modalities"] == {"vision": False, "video": False, "audio": False}
    assert (props["endpoint_slots"], props["model_ftype"]) == (True, "F32")
    settings = props["default_generation_settings"]
    assert settings["n_ctx"] == 2048
    assert settings["params"]["temperature"] == 1.0
    assert (settings["params"]["n_predict"], settings["params"]["seed"]) == (-1, 2**32 - 1)


def test_idle_slots(server: Server) -> None:
    """Every slot is listed and idle."""
    server.wait_until(slots_processing=0)
    slots = get(server, "/slots")
    assert [slot["id"] for slot in slots] == [0, 1, 2, 3]
    assert not any(slot["is_processing"] for slot in slots)
    assert all(slot["n_ctx"] == 2048 and slot["speculative"] for slot in slots)


def test_busy_slots(slow_server: Server) -> None:
    """A running sequence is told with its counts; without an idle slot a probe gets 503."""
    held: list[Iterator[str]] = []  # a closed iterator closes its connection
    with contextlib.ExitStack() as stack:
        for count in range(1, 5):
            answer = stack.enter_context(
                http.stream("POST", slow_server.url + "/v1/completions", json=LONG)
            )
            held.append(answer.iter_lines())
            next(held[-1])
            if count == 1:
                first = get(slow_server, "/slots")[0]
                assert first["is_processing"] is True
                assert first["n_prompt_tokens"] == first["n_prompt_tokens_processed"] > 0
                progress = first["next_token"][0]
                assert progress["n_decoded"] >= 1
                assert progress["n_decoded"] + progress["n_remain"] == 1_900
                assert first["params"]["n_predict"] == 1_900
                assert get(slow_server, "/slots")[0]["id_task"] == first["id_task"] > 0
                assert http.get(slow_server.url + "/slots?fail_on_no_slot=1").status_code == 200
        refused = http.get(slow_server.url + "/slots?fail_on_no_slot=1")
        assert refused.status_code == 503
        assert refused.json()["error"]["message"] == "no slot available"
    slow_server.wait_until(slots_processing=0)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/v1/loading/progress", "text/event-stream; charset=utf-8"),
    ],
)
def test_content_type(server: Server, path: str, kind: str) -> None:
    """A content type names its charset once: Prometheus 3 refuses to scrape it otherwise."""
    assert http.get(server.url + path).headers["content-type"] == kind


@pytest.mark.parametrize("path", ["/info", "/props", "/slots", "/version", "/tokenizer_info"])
def test_head_and_post(server: Server, path: str) -> None:
    """HEAD is GET without the body; POST is not taken."""
    answer = http.head(server.url + path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert http.post(server.url + path, json={}).status_code == 405
