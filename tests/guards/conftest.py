"""Starts the schedules of a module when its first test begins."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.guards.side_by_side import AT_ONCE, Case


@pytest.fixture(scope="module", autouse=True)
def _side_by_side(request: pytest.FixtureRequest) -> Iterator[None]:
    cases = []
    for item in request.session.items:
        case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
        if isinstance(case, Case) and getattr(item, "module", None) is request.module:
            cases.append(case)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for case in cases:
            case.begin(pool)
        yield
        pool.shutdown(wait=False, cancel_futures=True)
