"""A program on a pseudo-terminal of its own: what a person at a keyboard does and sees."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

from tests.cli.command import PROGRAM, WITHIN, hear_hangups, variables

#: A shell with jobs, and a prompt that is not part of what it echoes.
SHELL = ("bash", "--norc", "--noprofile", "--noediting", "-i")
#: What it says when a job stops, and its prompt.
STOPPED = r"(?s)Stopped.*?\nready\$ "
#: A program in Python that tells which of two signals it gets first. (The handler of one can run
#: within the other's.)
TOLD_FIRST = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT, signal.SIGTERM})
print(f"pid={os.getpid()}", flush=True)
while True:
    told = signal.sigwait({signal.SIGCONT, signal.SIGTERM}) == signal.SIGTERM
    print("told" if told else "worked", flush=True)
    if told:
        os._exit(0)
"""


class Terminal:
    """A program whose session has this terminal. Its session is killed after the `with` block."""

    def __init__(
        self,
        *words: str,
        nodes: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
        size: tuple[int, int] = (24, 80),
    ) -> None:
        self._master, slave = pty.openpty()
        self.resize(*size)
        env = {"PS1": "ready$ ", "TERM": "xterm", "BASH_SILENCE_DEPRECATION_WARNING": "1",
               **(env or {})}  # fmt: skip
        # `setsid` makes the terminal the controlling one, and becomes the program.
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *program, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=variables(nodes, env),
            preexec_fn=hear_hangups,  # noqa: PLW1509 - it only sets a signal
        )
        os.close(slave)
        self.seen = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def type(self, text: str) -> None:
        """Presses these keys."""
        os.write(self._master, text.encode())

    def expect(self, pattern: str, within: float = WITHIN) -> str:
        """Waits until what is shown matches; forgets that, and returns the match's first group."""
        limit = time.monotonic() + within
        while not (match := re.search(pattern, self.seen)):
            assert time.monotonic() < limit, f"{pattern!r} was not shown: {self.seen!r}"
            assert self._read(0.05), f"{pattern!r} was not shown before the end: {self.seen!r}"
        self.seen = self.seen[match.end() :]
        return match[1] if match.re.groups else match[0]

    def foreground(self) -> int:
        """The process group in the foreground."""
        return os.tcgetpgrp(self._master)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self) -> None:
        """Closes the terminal, as the end of a connection does."""
        os.close(self._master)
        self._master = -1

    def end(self, within: float = WITHIN) -> tuple[int, str]:
        """Waits for its end: the status, and what was shown and not expected."""
        limit = time.monotonic() + within
        while self._process.poll() is None or self._read(0.0):
            assert time.monotonic() < limit, f"it has not ended: {self.seen!r}"
            self._read(0.05)
        return self._process.returncode, self.seen

    def _read(self, wait: float) -> bool:
        """Reads what is there; False when the other end is closed, or nothing came at once."""
        if self._master < 0:
            return False
        if not select.select([self._master], [], [], wait)[0]:
            return wait > 0
        with contextlib.suppress(OSError):
            data = os.read(self._master, 65536)
            self.seen += data.decode().replace("\r\n", "\n")
            return bool(data)
        return False

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in _session(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        if self._master >= 0:
            os.close(self._master)


class Shell(Terminal):
    """A shell with jobs, which has shown its prompt when the `with` block begins."""

    def __init__(self, nodes: Sequence[str]) -> None:
        super().__init__(program=SHELL, nodes=nodes)

    def __enter__(self) -> Shell:
        try:
            self.prompt()
        except BaseException:
            self.__exit__()
            raise
        return self

    def prompt(self) -> None:
        """Waits until it waits for a command."""
        self.expect(r"ready\$ ")


def _session(leader: int) -> list[int]:
    """The processes of a session, its leader last."""
    members = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(ValueError, ProcessLookupError, PermissionError):
            if os.getsid(int(name)) == leader:
                members.append(int(name))
    return sorted(members, reverse=True)
