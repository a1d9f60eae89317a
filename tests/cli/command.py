"""Runs the `quorlock` command, in a session of its own, with pipes or on a pseudo-terminal."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.support.processes import end_group

ROOT = Path(__file__).parents[2]


def _newest_build() -> Path:
    """Cargo's build of the command: in a folder of the target, if the target was named."""
    builds = [
        *(ROOT / "target").glob("debug/quorlock"),
        *(ROOT / "target").glob("*/debug/quorlock"),
    ]
    assert builds, "the command is not built: make test-python builds it"
    return max(builds, key=lambda build: build.stat().st_mtime)


PROGRAM = (str(_newest_build()),)
WITHIN = 15.0


@dataclass(frozen=True)
class Ended:
    """How a command has ended."""

    code: int
    out: str
    err: str


class Command:
    """A running command. It and its group are killed at the end of the `with` block."""

    def __init__(
        self,
        *words: str | bytes,
        nodes: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._process = subprocess.Popen(
            [*program, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # so that a line that has come can be waited for
            env=variables(nodes, env),
            start_new_session=True,
            preexec_fn=hear_hangups,  # noqa: PLW1509 - it only sets a signal
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> str:
        """The next line that it prints."""
        return _line(self._process.stdout)

    def message(self) -> str:
        """The next line on its standard error."""
        return _line(self._process.stderr)

    def type(self, text: str) -> None:
        """Writes to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self, within: float = WITHIN) -> Ended:
        """Waits for its end."""
        out, err = self._process.communicate(timeout=within)
        return Ended(self._process.returncode, out.decode(), err.decode())

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        end_group(self._process)


def _line(stream: IO[bytes] | None) -> str:
    assert stream is not None
    assert select.select([stream], [], [], WITHIN)[0], "it writes no more"
    return stream.readline().decode().rstrip("\n")


def variables(nodes: Sequence[str] = (), env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command that uses these nodes, and of no other."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("QUORLOCK_")}
    for name in ("COLUMNS", "NO_COLOR"):
        kept.pop(name, None)
    return {**kept, "QUORLOCK_NODES": ",".join(nodes), **(env or {})}


def hear_hangups() -> None:
    """Takes SIGHUP as usual, also where the tests were started by `nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def call(*words: str | bytes, within: float = WITHIN, **options: object) -> Ended:
    """Runs the command to its end."""
    with Command(*words, **options) as command:  # type: ignore[arg-type]
        return command.end(within)


def is_alive(pid: int) -> bool:
    """Whether the process runs: one that has ended and was not reaped does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def state(pid: int) -> str:
    """The kernel's letter for what the process does: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
