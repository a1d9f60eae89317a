"""Tests that the page on events, the dashboard and the alert rules name what there is."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from quorlock import QuorumUnreachable, Redlock, events, otel
from tests.support.wait import eventually

FOLDER = Path(__file__).parents[2] / "docs" / "observability"
DASHBOARD = json.loads((FOLDER / "grafana.json").read_text())
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]

#: The values of each label of each metric.
Shown = dict[str, dict[str, set[str]]]


def _expressions() -> dict[str, str]:
    panels = [panel for panel in DASHBOARD["panels"] if "targets" in panel]
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in panels
        for target in panel["targets"]
    }
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            found[variable["name"]] = variable["query"]
    return found | {rule["alert"]: rule["expr"] for rule in RULES}


EXPRESSIONS = _expressions()


@pytest.fixture(scope="module")
def shown() -> Iterator[Shown]:
    """What the exporter shows of locks that met everything that is counted."""
    registry = CollectorRegistry()
    meters = MeterProvider([PrometheusMetricReader(registry=registry)])
    locks = Redlock(["memory://", "memory://", "memory://"])
    unreachable = Redlock(["redis://127.0.0.1:1"], unreachable_timeout=0, retry_limit=0)
    for manager in (locks, unreachable):
        otel.instrument(manager, meter_provider=meters)
    with locks.lock("r", ttl=5) as lease:
        lease.extend(5)
    with pytest.raises(QuorumUnreachable):
        unreachable.lock("r").acquire()
    short = locks.lock("short", ttl=0.05, auto_extend=False, on_lost=lambda: None)
    assert short.acquire()
    eventually(lambda: locks.stats().losses["expired"] == 1)
    found: Shown = defaultdict(lambda: defaultdict(set))
    eventually(lambda: _values(_read(registry), "quorlock_hold_duration_seconds_count") >= 2)
    for sample in _read(registry):
        for name, value in sample.labels.items():
            found[sample.name][name].add(value)
        found[sample.name]["job"].add("added by Prometheus")
    yield found
    meters.shutdown()


def _read(registry: Any) -> list[Any]:
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return [sample for family in families for sample in family.samples]


def _values(samples: list[Any], name: str) -> float:
    return float(sum(sample.value for sample in samples if sample.name == name))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_what_is_named_is_shown(name: str, shown: Shown) -> None:
    text = EXPRESSIONS[name]
    groups = re.findall(r"\bby \(([^)]*)\)", text)
    query = re.sub(r"\bby \([^)]*\)", "", text)
    metrics = re.findall(r"\b(quorlock_\w+)(?:\{([^}]*)\})?", re.sub(r'=~?"[^"]*"', "", query))
    assert metrics, query
    for metric, conditions in metrics:
        assert metric in shown, metric
        named = [word.strip(" ~=!") for word in conditions.split(",") if word]
        named += [label.strip() for group in groups for label in group.split(",")]
        assert set(named) <= set(shown[metric]), (metric, named)
        for label, value in re.findall(r'(\w+)="([a-z_-]+)"', query):
            assert value in shown[metric][label], (metric, label, value)


def test_thresholds_are_bounds_of_the_histograms(shown: Shown) -> None:
    # Between two bounds a quantile is only guessed, and would cross a threshold by chance.
    found = set()
    for rule in RULES:
        match = re.search(r"rate\((\w+_bucket).*\) [<>] ([\d.]+)$", rule["expr"])
        if match:
            found.add(rule["alert"])
            assert float(match[2]) in {float(bound) for bound in shown[match[1]]["le"]}
    assert found == {"QuorlockRenewalLate", "QuorlockAcquireSlow"}


def test_the_first_loss_is_an_increase(shown: Shown) -> None:
    # Prometheus sees none where a counter begins with 1.
    assert shown["quorlock_lost_total"]["quorlock_reason"] == {"expired", "gone", "held-too-long"}
    assert "quorlock_degraded_total" in shown


def test_every_panel_and_rule_is_named_once() -> None:
    titles = [panel["title"] for panel in DASHBOARD["panels"]]
    identities = [panel["id"] for panel in DASHBOARD["panels"]]
    alerts = [rule["alert"] for rule in RULES]
    for names in (titles, identities, alerts):
        assert len(set(names)) == len(names)
    assert all(rule["annotations"]["summary"] for rule in RULES)
    assert all(rule["labels"]["severity"] in {"warning", "critical"} for rule in RULES)


def _fields_on_the_page() -> dict[str, set[str]]:
    page = (FOLDER.parent / "events.md").read_text().partition("## Events")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", page, re.MULTILINE)
    return {name: {*re.findall(r"`(\w+)`", fields)} for name, fields in rows}


@pytest.mark.parametrize(
    "event", [it for it in map(vars(events).get, events.__all__) if it and it.name != "event"]
)
def test_the_page_names_the_fields_of_every_event(event: type[events.Event]) -> None:
    fields = {field.name for field in dataclasses.fields(event)} - {"at"}
    if issubclass(event, events.LeaseEvent) and event is not events.Acquired:
        fields -= {field.name for field in dataclasses.fields(events.LeaseEvent)}
    assert fields <= _fields_on_the_page()[event.name]
