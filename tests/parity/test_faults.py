"""Tests that the tests exist which the table of faults in tests/README.md names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in (ROOT / "tests" / "README.md").read_text().splitlines()
    if re.match(r"\| \d+\. ", line)
]
NAMED = sorted({name for row in ROWS for name in re.findall(r"`(tests/[^`]+|core/[^`]+)`", row[2])})


def test_every_fault_has_a_test() -> None:
    numbers = {int(row[0].split(".")[0]) for row in ROWS}
    assert numbers == set(range(1, 35))
    without = {int(row[0].split(".")[0]) for row in ROWS if "`" not in row[2]}
    assert without == {11}, "only semaphores do not apply"


@pytest.mark.parametrize("named", NAMED)
def test_the_named_test_is_there(named: str) -> None:
    path, name = named.split("::")
    text = (ROOT / path).read_text()
    if path.endswith(".py"):
        assert re.search(rf"def {name}\(", text)
    elif path.endswith(".rs"):
        assert re.search(rf"fn {name}\(", text)
    else:
        # It may be named for each of several cases: `${client}: ...`.
        assert re.search(rf"it\(\s*['\"`][^\n]*{re.escape(name)}", text)
