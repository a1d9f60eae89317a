"""What is measured: one file a workload, each with `run(run)`; in the order in which they run."""

from __future__ import annotations

from types import ModuleType

from bench.workloads import (
    contention,
    far,
    faulty,
    flat,
    flight,
    held,
    single,
    startup,
)

WORKLOADS: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module
    for module in (single, flight, far, faulty, contention, held, startup, flat)
}
