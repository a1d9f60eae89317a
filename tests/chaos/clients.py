"""Starts, signals and ends the client processes of a run. Knows nothing of their work."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support import watchdog
from tests.support.servers import APART
from tests.support.wall_clock import WallClock

ROOT = Path(__file__).parents[2]
#: Seconds in which a client must end when it is asked to.
PATIENCE = 20.0


class Client:
    """One process, and its successors after a kill."""

    def __init__(
        self, name: str, command: Sequence[str], orders: Mapping[str, Any], directory: Path,
        clock: WallClock,
    ) -> None:  # fmt: skip
        """Starts nothing yet; `orders` are what the program reads."""
        self.name = name
        self.clock = clock
        self.problems: list[str] = []
        self._command = list(command)
        self._orders = dict(orders)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._lives = 0

    def start(self) -> None:
        """A process with a log of its own."""
        self._lives += 1
        life = f"{self.name}.{self._lives}"
        orders = {
            **self._orders, "name": life, "log": str(self._directory / f"{life}.log"),
            # Node has no name for this clock: its own differs by a constant.
            "boottime_ahead": time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic(),
        }  # fmt: skip
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [*self._command, json.dumps(orders)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **self.clock.variables},
                **APART,
            )
        watchdog.register(self._process.pid)

    def pause(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL."""
        self._look()
        self._signal(signal.SIGKILL)
        self._collect()

    def stop(self) -> None:
        """Asks it to end; returns when it has, or was made to."""
        self._look()
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.problems.append(f"{self.name} did not end within {PATIENCE} s")
            self.kill()
        self._look()
        self._collect()
        if errors := self._errors.read_text(errors="replace"):
            self.problems.append(f"{self.name} wrote: {errors[:2000]}")

    @property
    def _errors(self) -> Path:
        return self._directory / f"{self.name}.errors"

    def _signal(self, number: int) -> None:
        self._look()
        if self._process is not None:
            self._process.send_signal(number)

    def _look(self) -> None:
        """Whether it has ended by itself, other than well: that must never be."""
        if self._process is not None and (status := self._process.poll()):
            wrote = self._errors.read_text(errors="replace")[-500:]
            self.problems.append(f"{self.name} ended by itself, with status {status}: {wrote}")
            self._collect()

    def _collect(self) -> None:
        if self._process is None:
            return
        watchdog.forget(self._process.pid)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None


class Clients:
    """All client processes of a run."""

    COUNT = 5
    #: Numbers of those whose clock can be set.
    CLOCKS = (2,)
    #: Seconds by which the clocks of some are wrong from the beginning.
    AHEAD: Mapping[int, float] = {0: -4.4, 3: -3600.0}

    def __init__(
        self, orders: Mapping[str, Any], directory: Path, urls_for: Callable[[int], list[str]],
        others: Sequence[str], *, right_clocks: bool = False,
    ) -> None:  # fmt: skip
        """Three processes in Python, two of them with asyncio, and two in Node.

        One of them has a second manager, of the nodes `others`.
        """
        self.directory = directory / "clients"
        self.directory.mkdir()
        python = [sys.executable, "-X", "dev", "-m", "tests.chaos.worker"]
        node = ["node", "tests/chaos/worker.mjs"]
        plans: list[tuple[str, list[str], dict[str, Any]]] = [
            ("python-blocking", python, {"api": "blocking", "tasks": 2}),
            ("python-asyncio", python, {"api": "asyncio", "tasks": 2, "others": list(others)}),
            ("python-clock", python, {"api": "asyncio", "tasks": 1}),
            ("node-1", node, {"tasks": 2}),
            ("node-2", node, {"tasks": 1}),
        ]
        self._clients = []
        for number, (name, command, more) in enumerate(plans):
            clock = WallClock(self.directory, f"clock-{number}")
            clock.step(0.0 if right_clocks else self.AHEAD.get(number, 0.0))
            own = {"nodes": urls_for(number), "seed": f"{orders['seed']}/{name}"}
            self._clients.append(
                Client(name, command, {**orders, **more, **own}, self.directory, clock)
            )

    def start(self) -> None:
        """All of them."""
        for client in self:
            client.start()

    def stop(self) -> list[str]:
        """Asks all to end; returns what was wrong with them."""
        for client in self:
            client.stop()
        return [problem for client in self for problem in client.problems]

    def kill(self) -> None:
        """All of them, whatever they do."""
        for client in self:
            client.kill()

    @property
    def logs(self) -> list[Path]:
        """What they wrote."""
        return sorted(self.directory.glob("*.log"))

    def __getitem__(self, number: int) -> Client:
        return self._clients[number]

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients)
