"""GET /metrics: what happened is counted, under every name that scrapers use."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from tests.support import http
from tests.support.metrics import scrape
from tests.support.programs.processes import Server, serving
from worker.api.info.collector import ALIASES


@pytest.fixture(scope="module")
def counted(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    state = tmp_path_factory.mktemp("state")
    options = ("--draft", "ngram", "-c", "1024", "-t", "1", "--state-dir", state)
    with serving("--model", tiny, *options) as server:
        yield server


def test_requests_are_counted(counted: Server) -> None:
    """Tokens, prefix hits, outcomes and times of ended requests are in the counters."""
    before = scrape(counted.url)
    body = {"prompt": [1, *range(5, 45)], "max_tokens": 6, "ignore_eos": True, "temperature": 0}
    counted.post(body)
    usage = counted.post(body).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 41
    after = scrape(counted.url)
    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert grown["worker_requests_totallength"] == 2
    assert grown["worker_prompt_tokens_total"] == 82
    assert grown["worker_tokens_generated_total"] == 12
    assert grown["worker_prefix_hits_totalcells"] == 41
    assert grown["worker_prompt_tokens_computed_total"] == 41
    assert grown["worker_prefix_queries_total"] == 82
    assert grown["worker_first_token_seconds_count"] == 2
    assert 0 < grown["worker_inter_token_seconds_count"] <= 10  # a step may give several tokens
    assert grown["worker_first_token_seconds_bucket+Inf"] == 2
    assert grown["worker_steps_total"] >= 7
    assert after["worker_requests_running"] == 0
    assert after["worker_kv_cellslive"] == 0
    assert after["worker_kv_cellscached"] > 40
    assert sum(after[f"worker_kv_cells{state}"] for state in ("live", "cached", "free")) == 1024
    assert after["worker_memory_bytes"] > 10e6
    assert after["worker_vram_bytes"] == 0
    assert after["worker_uptime_seconds"] > before["worker_uptime_seconds"] > 0
    assert grown["worker_inference_duration_ms_count"] == 2
    seconds = grown["worker_request_seconds_sum"]
    assert grown["worker_inference_duration_ms_sum"] == pytest.approx(1e3 * seconds)
    assert after["worker_inference_duration_ms_bucket2500.0"] >= 2
    assert int(http.get(counted.url + "/metrics").headers["process-start-time-unix"]) > 1.7e9


def test_what_was_chosen(counted: Server) -> None:
    """They say how the worker computes now: a sequence longer than its stream changes that."""
    counted.post({"prompt": [1] * 400, "max_tokens": 1})
    found = scrape(counted.url)
    assert found["worker_kv_unified"] == found["worker_attention_fused"] == 1
    assert found["worker_compute_threadsone"] == found["worker_compute_threadsseveral"] == 1
    assert found["worker_neighbours_busy"] in (0, 1)


def test_attention_that_the_user_has_chosen(tiny: Path) -> None:
    """Where flash attention is off, the metric says so."""
    with serving("--model", tiny, "--flash-attn", "off", "-t", "1") as server:
        assert scrape(server.url)["worker_attention_fused"] == 0


def test_echo_with_drafting(counted: Server) -> None:
    """A scored prompt beside drafting is answered whole."""
    body = {"prompt": [5, 6, 7] * 8, "echo": True, "logprobs": 1, "max_tokens": 60}
    answer = counted.post(body | {"temperature": 0, "ignore_eos": True})
    assert answer.status_code == 200
    assert len(answer.json()["choices"][0]["logprobs"]["tokens"]) == 84


def test_every_alias_tells_the_same(counted: Server) -> None:
    """Each metric has the same value, or the sum of its values, under all its names."""
    values = scrape(counted.url)
    for name, aliases in ALIASES.items():
        for alias in aliases:
            for suffix in ("", "_total", "_count", "_sum"):
                ours = [value for key, value in values.items()
                        if re.fullmatch(name + suffix + "[a-z]*", key)]  # fmt: skip
                theirs = [value for key, value in values.items()
                          if re.fullmatch(alias.name + suffix + "[a-z]*", key)]  # fmt: skip
                assert sum(theirs) == sum(ours)
                assert bool(theirs) == bool(ours)
    assert values["vllm:request_success_totalabort"] == values["worker_requests_totalaborted"]


FEW = {"max_tokens": 2, "seed": 1}
MANY: dict[str, dict[str, Any]] = {
    "copies": {"prompt": [1, *range(50, 90)], "n": 3},
    "copies of two": {"prompt": [[1, *range(90, 130)], [1, 7, 8]], "n": 2},
    "best of": {"prompt": [1, *range(130, 170)], "best_of": 3},
}


def prompt_counts(server: Server) -> tuple[float, float]:
    """Prompt tokens so far, and those of them that were found."""
    values = scrape(server.url)
    found = sum(
        values[f"worker_prefix_hits_total{source}"] for source in ("cells", "memory", "disk")
    )
    return values["worker_prompt_tokens_total"], found


@pytest.mark.parametrize("name", MANY)
def test_prompts_of_several_answers(counted: Server, name: str) -> None:
    """The counters grow by what `usage` says, prompt tokens and cached ones, the first time and
    from the cache."""
    for _ in range(2):
        before = prompt_counts(counted)
        usage = counted.post(MANY[name] | FEW).json()["usage"]
        after = prompt_counts(counted)
        assert after[0] - before[0] == usage["prompt_tokens"]
        assert after[1] - before[1] == usage["prompt_tokens_details"]["cached_tokens"]


def test_derived_names(counted: Server) -> None:
    """What others divide otherwise is made of the same sums."""
    counted.post({"prompt": [7, 8, 9] * 9, "max_tokens": 8, "ignore_eos": True})
    values = scrape(counted.url)
    by_source = [value for key, value in values.items() if "prompt_tokens_by_source" in key]
    assert sum(by_source) == values["worker_prompt_tokens_total"]
    assert values["llamacpp:prompt_seconds_total"] == values["worker_step_seconds_totalprompts"]
    assert values["llamacpp:tokens_predicted_seconds_total"] == values["worker_write_seconds_sum"]
    assert values["llamacpp:n_busy_slots_per_decode"] == pytest.approx(
        values["worker_step_sequences_total"] / values["worker_steps_total"]
    )
    assert values["llamacpp:prompt_tokens_seconds"] > 0
    assert values["llamacpp:predicted_tokens_seconds"] > 0
    # Nothing was done since then.
    assert scrape(counted.url)["llamacpp:predicted_tokens_seconds"] == 0


def test_answers_are_counted_by_route_and_error(counted: Server) -> None:
    """Whatever a client asks for, labels are routes, statuses and codes of ours."""
    before = scrape(counted.url)
    url = counted.url
    counted.post({"prompt": [5], "max_tokens": 1})
    assert counted.post({"prompt": [10**6], "max_tokens": 1}).status_code == 400
    for place in range(5):
        assert http.get(f"{url}/nowhere/{place}").status_code == 404
        assert http.get(f"{url}/v1/models/{place}").status_code == 404
    assert http.request("DELETE", url + "/v1/completions").status_code == 405
    after = scrape(url)
    grown = {name: after[name] - before.get(name, 0) for name in after if "http" in name
             or name.startswith("worker_errors")}  # fmt: skip
    answers = "worker_http_requests_total"
    found = {name: count for name, count in grown.items() if count and "/metrics" not in name}
    assert found.pop("worker_errors_totalinvalid_request400", 0) + found.pop(
        "worker_errors_totaltoken_out_of_range400", 0
    )
    assert found == {
        f"{answers}POST /v1/completions200": 1,
        f"{answers}POST /v1/completions400": 1,
        f"{answers}GET /v1/models/{{model_id}}404": 5,
        f"{answers}other404": 5,
        f"{answers}other405": 1,
        "worker_errors_totalmodel_not_found404": 5,
        "worker_errors_totalnot_found404": 5,
        "worker_errors_totalmethod_not_allowed405": 1,
    }


def test_the_docs_name_all_of_them(counted: Server) -> None:
    """docs/monitoring.md has each name of ours that is exported, and no other."""
    page = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text()
    section = page.partition("\n## Metrics\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(worker_\w+)`", section))
    text = http.get(counted.url + "/metrics").text
    exported = set(re.findall(r"^# TYPE (worker_\S+) ", text, re.MULTILINE))
    assert named == exported


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;q=0.3",
        "application/openmetrics-text; version=new",
    ],
)
def test_openmetrics(counted: Server, accept: str) -> None:
    """Who accepts OpenMetrics gets it, whatever version they name, and it parses."""
    answer = http.get(counted.url + "/metrics", headers={"accept": accept})
    assert answer.headers["content-type"] == openmetrics.CONTENT_TYPE_LATEST
    parse: Any = cast("Any", openmetrics_parser).text_string_to_metric_families
    families = {family.name for family in parse(answer.text)}
    plain = http.get(counted.url + "/metrics").text
    assert families == {family.name for family in text_string_to_metric_families(plain)}


def test_head(counted: Server) -> None:
    """HEAD /metrics is 200 without a body."""
    answer = http.head(counted.url + "/metrics")
    assert (answer.status_code, answer.content) == (200, b"")
