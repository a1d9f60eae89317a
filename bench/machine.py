"""Makes figures repeatable on a small machine: pins processes to cores and keeps cores awake.

Each step is left out where the system does not permit it; `Conditions` tells which were taken.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support import watchdog

#: Servers on the first, clients on the second; the same where there is but one.
SERVERS, CLIENTS = 0, 1


@dataclass(frozen=True)
class Conditions:
    """Under which the figures came about."""

    system: str
    processor: str
    cores: int
    pinned: bool
    spinning: bool

    def as_json(self) -> dict[str, object]:
        """For the results."""
        return asdict(self)


@contextlib.contextmanager
def steady() -> Iterator[Conditions]:
    """Keeps the cores from halting for as long as it lasts."""
    cores = _cores()
    spinners = [_spinner(core) for core in cores[:2]]
    running = [spinner for spinner in spinners if spinner is not None]
    try:
        yield Conditions(
            system=f"{platform.system()} {platform.release()}",
            processor=_processor(),
            cores=len(cores),
            pinned=len(cores) > 1,
            spinning=len(running) == len(spinners),
        )
    finally:
        for spinner in running:
            watchdog.forget(spinner.pid)
            spinner.kill()
            spinner.wait()


@contextlib.contextmanager
def placed(place: int) -> Iterator[None]:
    """Processes that are started in here run on one core, threads of theirs included."""
    cores = _cores()
    if len(cores) < 2:
        yield
        return
    # Affinity is a thread's own, and a child inherits that of the thread which started it.
    os.sched_setaffinity(0, {cores[place]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, set(cores))


def _cores() -> list[int]:
    global _allowed
    if _allowed is None:
        try:
            _allowed = sorted(os.sched_getaffinity(0))
        except (AttributeError, OSError):
            _allowed = [0]
    return _allowed


_allowed: list[int] | None = None


def _spinner(core: int) -> subprocess.Popen[bytes] | None:
    """A loop that runs only where nothing else wants to: waking a halted core takes 40 us here."""
    program = (
        "import os\n"
        "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
        f"os.sched_setaffinity(0, {{{core}}})\n"
        "print(flush=True)\n"
        "while True: pass\n"
    )
    spinner = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    watchdog.register(spinner.pid)
    assert spinner.stdout is not None
    with spinner.stdout as ready:
        if ready.read(1):
            return spinner
    watchdog.forget(spinner.pid)
    spinner.wait()
    return None


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
