"""Sets the wall clock of one process, by a small library loaded before libc. Linux only.

    clock = WallClock(directory)
    Server(Options(env=clock.variables))
    clock.step(+40)
    clock.gain(0.05)  # runs 5 % fast from now on

Only the wall clock is changed: monotonic clocks go on, as on a machine whose time is set.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path


class WallClock:
    """One clock; every process that is started with its variables reads it."""

    def __init__(self, directory: Path, name: str = "wall-clock") -> None:
        """Shows the right time; `directory` keeps its file."""
        self._path = directory / name
        self.offset = 0.0
        self.step(0.0)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of a process that reads it."""
        return {"LD_PRELOAD": _library(), "QUORLOCK_WALL_CLOCK": str(self._path)}

    def step(self, seconds: float) -> None:
        """Sets it forward, or back."""
        self.offset += seconds
        self._write(struct.pack("q", round(self.offset * 1e9)))

    def gain(self, rate: float) -> None:
        """It gains this many seconds in each second from now on; once in its life.

        What it has gained is not part of `offset`.
        """
        # The rate is written last: what is read meanwhile is the clock as it was.
        self._write(struct.pack("qqd", round(self.offset * 1e9), time.time_ns(), rate))

    def _write(self, fields: bytes) -> None:
        if not self._path.exists():
            self._path.write_bytes(bytes(struct.calcsize("qqd")))
        # In place: the processes have the file mapped.
        with self._path.open("r+b") as file:
            file.write(fields)


@cache
def _library() -> str:
    # Kept for the life of this process, like the servers that it is loaded into.
    folder = tempfile.TemporaryDirectory(prefix="quorlock-clock-")
    _folders.append(folder)
    library = Path(folder.name) / "clock.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return str(library)


_folders: list[tempfile.TemporaryDirectory[str]] = []
_SOURCE = Path(__file__).with_suffix(".c")
