"""The Grafana dashboard and the Prometheus files: valid, and about metrics that are there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from checks.examples.programs import EXAMPLES
from tests.support.metrics import fake_worker
from worker.api.info.readings import readings
from worker.engine.stats import Histogram
from worker.requests.journal import Outcomes

DASHBOARD: dict[str, Any] = json.loads((EXAMPLES / "grafana.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((EXAMPLES / "prometheus-alerts.yaml").read_text())
SCRAPING: dict[str, Any] = yaml.safe_load((EXAMPLES / "prometheus.yaml").read_text())
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
# What Prometheus adds to each sample.
TARGET = {"instance", "job"}


def exported() -> dict[str, set[str]]:
    """Names of all samples -> the labels that they have."""
    worker, loaded = fake_worker()
    found: dict[str, set[str]] = {"up": TARGET}
    for reading in readings(worker, loaded, loaded.engine.snapshot, Outcomes()):
        labels = {*TARGET, "model_name", *reading.labels}
        if isinstance(reading.value, Histogram):
            found |= {reading.name + end: labels for end in ("_sum", "_count")}
            found[reading.name + "_bucket"] = {*labels, "le"}
        else:
            found[reading.name + ("_total" if reading.kind == "counter" else "")] = labels
    return found


def panels() -> list[dict[str, Any]]:
    """All but the headings."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    """Of the dashboard, with a value for what Grafana puts in, and of the alerts."""
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "1m")
    for rule in RULES:
        yield rule["expr"]


@pytest.mark.parametrize("text", list(expressions()))
def test_an_expression_is_about_what_is_exported(text: str) -> None:
    """It parses, and its names and labels are those of the worker."""
    known, names, labels = exported(), list[str](), set[str]()

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            assert node.name is not None
            names.append(node.name)
            assert {matcher.name for matcher in node.matchers.matchers} <= known[node.name]
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            labels.update(node.modifier.labels)

    promql_parser.walk(promql_parser.parse(text), visit)
    assert names
    assert all(labels <= known[name] for name in names)


def test_grafana_knows_every_field() -> None:
    """Grafana's own types read the dashboard and write it again: nothing is lost."""
    register_default_plugins()
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(DASHBOARD)))
    assert lost(DASHBOARD, again) == []


def lost(before: Any, after: Any, place: str = "") -> list[str]:
    """Where something was that is not there, or is different."""
    if not isinstance(before, dict | list):
        return [] if before == after else [f"{place}: {before!r}, {after!r}"]
    was, now = parts_of(before), parts_of(after)
    return [part for key in was for part in lost(was[key], now.get(key), f"{place}.{key}")]


def parts_of(value: Any) -> dict[Any, Any]:
    """A list or an object, by place or name."""
    return dict(enumerate(cast("list[Any]", value))) if isinstance(value, list) else value or {}


def test_the_dashboard_can_be_imported_anywhere() -> None:
    """It names no data source of its own, its panels have ids of their own and do not overlap."""
    assert {json.dumps(panel["datasource"]) for panel in panels()} == {
        json.dumps({"type": "prometheus", "uid": "${datasource}"})
    }
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    text = json.dumps(DASHBOARD).replace("$__rate_interval", "")
    assert set(re.findall(r"\$\{?(\w+)", text)) == variables
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_alerts_are_scraped_for() -> None:
    """The configuration names the file of the alerts, and the job that they ask for."""
    assert SCRAPING["rule_files"] == ["prometheus-alerts.yaml"]
    (scraped,) = SCRAPING["scrape_configs"]
    jobs = {job for rule in RULES for job in re.findall(r'job="([^"]+)"', rule["expr"])}
    assert jobs == {scraped["job_name"]}
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
