"""Tests `completions`, `man` and `bench`."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.cli.command import PROGRAM, call
from tests.support.cluster import Cluster


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_name_every_command(shell: str) -> None:
    ended = call("completions", shell)
    assert (ended.code, ended.err) == (0, "")
    for word in ("run", "status", "release", "extend", "verify", "nodes", "doctor", "lock-delay"):
        assert word in ended.out


def test_bash_completes() -> None:
    script = (
        f'eval "$({PROGRAM[0]} completions bash)"; COMP_WORDS=(quorlock do); COMP_CWORD=1; '
        '_quorlock quorlock do quorlock; echo "${COMPREPLY[@]}"'
    )
    words = ["bash", "-c", script]
    shown = subprocess.run(words, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "doctor"


def test_the_manual_has_every_command() -> None:
    ended = call("man")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.count(".TH") > 8
    assert "QUORLOCK_FENCING_TOKEN" in ended.out
    if shutil.which("man"):
        words = ["man", "-l", "-"]
        shown = subprocess.run(words, input=ended.out, capture_output=True, text=True, check=True)
        assert "--grace" in shown.stdout


def test_an_unknown_shell() -> None:
    ended = call("completions", "csh")
    assert ended.code == 64
    assert "possible values: bash, zsh, fish" in ended.err


def test_bench(cluster3: Cluster) -> None:
    shown = call("bench", "--seconds", "0.2", nodes=cluster3.urls)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.count("lock and release") == shown.out.count("PING of all nodes") == 2
    measured = json.loads(call("--json", "bench", "--seconds", "0.2", nodes=cluster3.urls).out)
    assert [row["in_flight"] for row in measured] == [1, 1, 16, 16]
    assert all(row["per_second"] > 0 for row in measured)
    assert all(0 < row["p50_seconds"] <= row["p99_seconds"] for row in measured)
    assert all(not server.keys() for server in cluster3)


def test_bench_without_a_quorum(cluster3: Cluster) -> None:
    for server in cluster3[:2]:
        server.kill()
    assert call("--timeout", "300ms", "bench", nodes=cluster3.urls).code == 69


def test_bench_for_no_time() -> None:
    ended = call("--nodes", "redis://a", "bench", "--seconds", "0")
    assert ended.code == 64
    assert "a number of seconds above 0" in ended.err
