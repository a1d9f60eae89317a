"""Tests the golden schedules of tests/conformance with the blocking and the asyncio API."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.clients import LIBRARIES, ROOT
from tests.conformance.runner import Result, run_library, why_not
from tests.conformance.schedule import ScheduleError, read, read_all

CASES = read_all()
APIS = ("python", "asyncio")


@pytest.fixture(scope="module", params=APIS)
def results(request: pytest.FixtureRequest) -> dict[str, Result]:
    """What became of every case with one API; all run side by side."""
    command = [sys.executable, "-m", "tests.conformance", request.param, "--json"]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    told = (Result(**json.loads(line)) for line in ran.stdout.splitlines())
    return {result.name: result for result in told}


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_a_golden_schedule_holds(results: dict[str, Result], name: str) -> None:
    result = results[name]
    if result.status == "left out":
        pytest.skip(result.reason)
    assert result.status == "held", result.reason


@pytest.mark.parametrize("api", APIS)
def test_few_schedules_are_left_out(api: str) -> None:
    reasons = Counter(why_not(case, LIBRARIES[api]) for case in CASES)
    assert reasons.pop(None) >= len(CASES) - 2, reasons


def test_a_schedule_that_does_not_hold_is_told_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.txt"
    for text, problem in (
        ("at 0 acquire\nat 1 node 0 grant -> ours 9\nexpect won\n", "line 3: expect won: it ended"),
        ("at 0 acquire\nexpect sent grant 0 1\n", "it went to [0, 1, 2]"),
        ("nodes 1\nat 0 acquire\nat 1 node 0 grant -> ours 1000\nexpect pending\n", "it ended"),
        ("nodes 1\nat 0 acquire\nat 1 node 0 grant -> ours 1000\nexpect won until 900", "ms away"),
    ):
        file.write_text(text)
        (result,) = run_library("python", [read(file)], tries=1)
        assert result.status == "failed"
        assert problem in result.reason


def test_a_line_that_is_none_is_told(tmp_path: Path) -> None:
    file = tmp_path / "wrong.txt"
    for text in ("nodes three\n", "noodles 3\n", "at 5 acquire\nat 4 wait\n", "at soon wait\n"):
        file.write_text(text)
        with pytest.raises(ScheduleError, match=r"wrong\.txt:\d"):
            read(file)
