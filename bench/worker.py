"""Starts one contestant's process and asks it to run its loops. Measures nothing itself."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from bench import prepare
from bench.machine import CLIENTS, placed
from tests.support import watchdog

Json = dict[str, Any]


class Failed(Exception):
    """A contestant said that something went wrong, or ended."""


class TimedOut(Failed):
    """A contestant did not answer in time; its process was ended."""


class Program(Protocol):
    """What is known of a contestant before it is started."""

    @property
    def name(self) -> str:
        """As it is told of."""

    @property
    def style(self) -> str:
        """The way its users wait."""

    def command(self) -> Sequence[str | Path]:
        """Its words; the nodes come after it."""

    def variables(self) -> dict[str, str]:
        """Of its environment, beside those that it inherits."""


class Worker:
    """A contestant that has connected to its nodes."""

    def __init__(self, entrant: Program, nodes: Sequence[int | str]) -> None:
        """Starts it; `nodes` are the words that it is told them by."""
        self.entrant = entrant
        self._nodes = nodes
        self.ended = True
        self.restart()

    def restart(self) -> None:
        """Starts its process, a new one after it has ended."""
        self.started = time.monotonic()
        with placed(CLIENTS):
            self._process = subprocess.Popen(
                [*map(str, self.entrant.command()), *map(str, self._nodes)],
                cwd=prepare.ROOT,
                env={**_inherited(), **self.entrant.variables()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        watchdog.register(self._process.pid)
        self.ended = False
        self._unread = b""
        self.version: str = self._read(60.0)["version"]

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ask(self, request: Json, limit: float = 120.0) -> Json:
        """The answer to one request; `TimedOut` after `limit` seconds."""
        self.begin(request)
        return self.finish(limit)

    def begin(self, request: Json) -> None:
        """Hands a request over without waiting."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:  # ValueError: closed by `close`
            self.close()
            raise Failed(f"{self.entrant.name} has ended") from error

    def finish(self, limit: float = 120.0) -> Json:
        """The answer to what was begun."""
        answer = self._read(limit)
        if "error" in answer:
            raise Failed(f"{self.entrant.name}: {answer['error']}")
        return answer

    def cpu(self) -> float:
        """Seconds of processor time so far, all threads together."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Bytes that it has resident."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        """Ends it, however it is."""
        if self.ended:
            return
        self.ended = True
        watchdog.forget(self._process.pid)
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self, limit: float) -> Json:
        assert self._process.stdout is not None
        output, end = self._process.stdout.fileno(), time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, end - time.monotonic())):
                    self.close()
                    raise TimedOut(f"{self.entrant.name}: no answer within {limit:.0f} s")
                chunk = os.read(output, 1 << 20)
                if not chunk:
                    self.close()
                    raise Failed(f"{self.entrant.name} has ended")
                self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        answer: Json = json.loads(line)
        return answer


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
