"""Runs the demo's worker processes and prints what they do. Owns the processes and the terminal."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 20.0  # seconds for one event


class Worker:
    """A process with a name and a colour, spoken to in JSON lines."""

    def __init__(self, name: str, colour: int, command: list[str]) -> None:
        self.name = name
        self.colour = colour
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    @classmethod
    def python(cls, name: str, colour: int, urls: list[str]) -> Worker:
        """A worker in Python."""
        return cls(name, colour, [sys.executable, "-m", "demo.worker", *urls])

    @classmethod
    def node(cls, name: str, colour: int, urls: list[str]) -> Worker:
        """A worker in Node."""
        return cls(name, colour, ["node", "demo/worker.mjs", *urls])

    def tell(self, **command: object) -> None:
        """Gives an order."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def expect(self, wanted: str) -> dict[str, Any]:
        """The next event of all workers, which must be this one, of this worker."""
        worker, event = next_event()
        if (worker, event["event"]) != (self, wanted):
            raise RuntimeError(f"expected {wanted} of {self.name}, got {event} of {worker.name}")
        return event

    def close(self) -> None:
        """Lets it end; insists after a while."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            _EVENTS.put((self, json.loads(line)))
        _EVENTS.put((self, {"event": f"ended with status {self._process.wait()}"}))


_EVENTS: queue.Queue[tuple[Worker, dict[str, Any]]] = queue.Queue()


def next_event() -> tuple[Worker, dict[str, Any]]:
    """What happens next, and to whom."""
    return _EVENTS.get(timeout=PATIENCE)


class Terminal:
    """Prints what happens; in colour where a person is looking."""

    def __init__(self) -> None:
        self._colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._begun = time.monotonic()
        self.failures = 0

    def paint(self, text: str, code: int) -> str:
        """The text in a colour."""
        return f"\x1b[{code}m{text}\x1b[0m" if self._colours else text

    def heading(self, text: str) -> None:
        """The title of a scene."""
        print(f"\n{self.paint(text, 1)}", flush=True)

    def line(self, text: str) -> None:
        """Something that happened, with the time since the start."""
        stamp = self.paint(f"{time.monotonic() - self._begun:6.2f}s", 2)
        print(f"{stamp}  {text}", flush=True)

    def name(self, worker: Worker) -> str:
        """A worker's name in its colour."""
        return self.paint(f"{worker.name:<10}", worker.colour)

    def verdict(self, holds: object, text: str) -> None:
        """Whether something came true that should."""
        mark = self.paint("ok", 32) if holds else self.paint("FAILED", 31)
        self.failures += 0 if holds else 1
        self.line(f"{mark}  {text}")
