"""Tests that a server that is restarted under many clients is told of once by each process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.cluster import start_servers

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: Of each process; with four of them there are a hundred clients.
CLIENTS = "25"
NODE = ["node", str(HERE / "many_clients.mjs"), CLIENTS]
PROGRAMS = {
    "blocking": [sys.executable, "-m", "tests.parity.many_clients", "blocking", CLIENTS],
    "asyncio": [sys.executable, "-m", "tests.parity.many_clients", "aio", CLIENTS],
    "node": NODE,
    "another node": NODE,
}


def _start(command: list[str], urls: list[str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    words = [*command, *urls]
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)


def _hear(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if line != word:
        process.kill()
        raise AssertionError(f"it says {line!r}: {process.communicate()[1]}")


def test_each_process_tells_of_a_restart_once_in_one_line() -> None:
    with start_servers(3) as cluster:
        processes = {name: _start(command, cluster.urls) for name, command in PROGRAMS.items()}
        try:
            for process in processes.values():
                _hear(process, "held")
            cluster[1].kill()
            cluster[1].restart()
            for process in processes.values():
                _hear(process, "seen")
            told = {name: process.communicate(timeout=30) for name, process in processes.items()}
        finally:
            for process in processes.values():
                process.kill()
        for name, (out, err) in told.items():
            assert (processes[name].returncode, out) == (0, ""), err
            # Node adds how its warnings can be traced, once a process.
            lines = [line for line in err.splitlines() if "--trace-warnings" not in line]
            assert len(lines) == 1, err
            assert f"{cluster.urls[1]}: it was restarted and may have forgotten locks" in lines[0]
