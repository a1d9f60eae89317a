"""Tests that the README's examples run as they are written there, on real servers.

Its Rust example is compiled by the crate's own doctests.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.wait import eventually

ROOT = Path(__file__).parents[2]
#: What a reader would write around each example, and how it is run.
AROUND = {
    "python": ("def pay_invoice(number, fencing_token): print(number, fencing_token)", ""),
    "asyncio": (
        """
import asyncio
async def pay_invoice(number, fencing_token): print(number, fencing_token)
""",
        "asyncio.run(pay())",
    ),
    "js": (
        """
async function payInvoice(number, { signal, fencingToken }) {
  if (!signal.aborted) console.log(number, fencingToken)
}
""",
        "",
    ),
}


def examples() -> dict[str, str]:
    """The code of the README by language."""
    text = (ROOT / "README.md").read_text()
    found = re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    python = [code for language, code in found if language == "python"]
    (js,) = [code for language, code in found if language == "js"]
    assert len(python) == 2
    return {"python": python[0], "asyncio": python[1], "js": js}


@pytest.mark.parametrize("language", AROUND)
def test_the_example_runs(language: str, cluster3: Cluster) -> None:
    before, after = AROUND[language]
    code = f"{before}\n{examples()[language]}\n{after}\n"
    for name, url in zip("abc", cluster3.urls, strict=True):
        assert code.count(f"redis://{name}:6379") == 1
        code = code.replace(f"redis://{name}:6379", url)
    program = ["node", "--input-type=module", "-e"] if language == "js" else [sys.executable, "-c"]
    run = subprocess.run(
        [*program, code], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    number, token = run.stdout.split()
    assert number == "42"
    assert int(token) > 0
    eventually(lambda: cluster3.values("invoice:42") == [None] * 3)
