"""What GET /metrics says."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.support import http


def scrape(url: str) -> dict[str, float]:
    """Sample name (with the labels `outcome` and `le`, where there are) -> value."""
    answer = http.get(url + "/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        sample.name + sample.labels.get("outcome", "") + sample.labels.get("le", ""): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def count_ended(url: str, outcome: str = "") -> int:
    """How many requests of a worker ended so: stop, length, aborted, error; "": all of them."""
    name = "worker_requests_total" + outcome
    return int(sum(value for sample, value in scrape(url).items() if sample.startswith(name)))
