"""Makes sure that no server outlives the process that started it, however that process ends.

A small child process is told of every server; when the pipe from its parent closes, or its parent
changes, it kills those that are left. The usual alternative, PR_SET_PDEATHSIG, fires when the
*thread* that started a server ends, which tests with threads do all the time.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading

_lock = threading.Lock()
_pipe: int | None = None
_owner: int | None = None


def register(pid: int) -> None:
    """Kill `pid` when this process ends."""
    _send(f"+{pid}\n")


def forget(pid: int) -> None:
    """`pid` is about to be waited for: its number may soon belong to another process."""
    _send(f"-{pid}\n")


def _send(line: str) -> None:
    global _pipe, _owner
    with _lock:
        # A forked child has its parent's pipe, but its servers are not its parent's.
        if _pipe is None or _owner != os.getpid():
            _pipe, _owner = _start(), os.getpid()
        os.write(_pipe, line.encode())


def _start() -> int:
    read_end, write_end = os.pipe()
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid())],
        stdin=read_end,
        stdout=subprocess.DEVNULL,
        # Its own group: a Ctrl-C in a terminal must not end the watchdog before what it kills.
        start_new_session=True,
        cwd="/",
    ).returncode = 0  # never waited for: it ends after this process; silences ResourceWarning
    os.close(read_end)
    return write_end


def _started_at(pid: int) -> str | None:
    """Tells two processes with one number apart (Linux; elsewhere the number must do)."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None


def _watch(parent: int) -> None:
    registered: dict[int, str | None] = {}
    buffer = b""
    while True:
        # The time limit serves only to notice a parent whose pipe a forked child still holds open;
        # what the parent wrote before it ended is read first.
        if not select.select([0], [], [], 1.0)[0]:
            if os.getppid() == parent:
                continue
            break
        chunk = os.read(0, 65536)
        if not chunk:
            break
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            pid = int(line[1:])
            if line.startswith(b"+"):
                registered[pid] = _started_at(pid)
            else:
                registered.pop(pid, None)
    for pid, started in registered.items():
        if _started_at(pid) == started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _watch(int(sys.argv[1]))
