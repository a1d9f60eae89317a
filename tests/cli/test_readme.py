"""Tests that the README's lines for a shell run as they are written there, on real servers."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, ROOT, Ended, call
from tests.support.cluster import Cluster

#: What the scripts in the examples do.
SCRIPTS = {"report.sh": "echo report", "pay.sh": 'echo "paid $1 $QUORLOCK_FENCING_TOKEN"'}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def lines() -> list[str]:
    """The lines that call the command."""
    blocks = re.findall(
        r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    return [line for block in blocks for line in block.splitlines() if line.startswith("quorlock ")]


def test_the_lines_for_a_shell_run(cluster3: Cluster, folder: Path) -> None:
    path = f"{Path(PROGRAM[0]).parent}:{os.environ['PATH']}"

    def run(line: str) -> Ended:
        shell = ("sh", "-c", f"cd {folder} && {line}")
        return call(program=shell, nodes=cluster3.urls, env={"PATH": path})

    report, status, doctor, pay = lines()
    ended = run(report)
    assert (ended.code, ended.out, ended.err) == (0, "report\n", "")
    ended = run(status)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("'nightly-report' is free\n")
    ended = run(doctor)
    assert ended.code == 1, "the servers of the tests keep no log"
    assert "Locks can be had: 3 of 3 nodes" in ended.out
    ended = run(pay)
    assert (ended.code, ended.err) == (0, "")
    assert re.fullmatch(r"paid 42 [1-9]\d*\n", ended.out)
    # Another holds both locks.
    for server in cluster3:
        for name in ("nightly-report", "invoice:42"):
            server.command("SET", name, "another", "PX", 60_000)
    assert run(report).code == 75
    assert run(pay.replace("30s", "300ms")).code == 75
    for server in cluster3[:2]:
        server.kill()
    assert run(report).code == 69
