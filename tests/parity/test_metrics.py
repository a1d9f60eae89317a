"""Compares the metrics of `quorlock.otel` and `quorlock/otel`, which one dashboard shows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from quorlock import Redlock, otel
from tests.support.wait import eventually

PROGRAM = str(Path(__file__).with_name("metrics.mjs"))
ROOT = Path(__file__).resolve().parents[2]


def _in_python() -> dict[str, Any]:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    locks = Redlock(["memory://", "memory://", "memory://"])
    stop = otel.instrument(locks, meter_provider=meters)
    told: dict[str, Any] = {}

    def read() -> bool:
        data: Any = reader.get_metrics_data()
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            bounds = getattr(next(iter(metric.data.data_points)), "explicit_bounds", None)
            told[metric.name] = {
                "unit": metric.unit,
                "description": metric.description,
                "bounds": bounds and list(bounds),
            }
        return len(told) == 8

    with locks.lock("r", ttl=5) as lease:
        lease.extend()
    eventually(read)
    stop()
    meters.shutdown()
    return told


def test_the_metrics_are_the_same() -> None:
    run = subprocess.run(
        ["node", PROGRAM], capture_output=True, text=True, cwd=ROOT, check=False, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == _in_python()
