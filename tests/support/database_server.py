"""A database server of this run's own: its files, its user and its process. Knows no database."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.wait import eventually

_READY_WITHIN = 60.0


class DatabaseServer:
    """The server; a subclass says how it is set up, and when it is ready."""

    #: What stops it at once.
    stop = signal.SIGQUIT
    #: Whom it runs as if this process is root, which it refuses to run as: the first that is known.
    users: Sequence[str] = ("nobody",)

    def __init__(self, programs: Path) -> None:
        #: The folder of the server's programs.
        self.programs = programs
        self._home = tempfile.TemporaryDirectory(prefix="quorlock-db-", ignore_cleanup_errors=True)
        self.folder = Path(self._home.name)
        self._user = _user(self.users) if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self.log = self.folder / "log"
        self.set_up()
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder,
                user=self._user and self._user.pw_uid, group=self._user and self._user.pw_gid,
            )  # fmt: skip
        try:
            eventually(self._is_up, within=_READY_WITHIN)
        except BaseException:
            self.close()
            raise

    def set_up(self) -> None:
        """Makes its files."""
        raise NotImplementedError

    def command(self) -> list[str | Path]:
        """What starts it."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether it takes connections."""
        raise NotImplementedError

    def close(self) -> None:
        """Stops it and removes its files."""
        self._process.send_signal(self.stop)
        self._process.wait(timeout=30)
        self._home.cleanup()

    def run(self, command: list[str | Path]) -> None:
        """Runs a program as its user, to its end."""
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.folder,
            user=self._user and self._user.pw_uid, group=self._user and self._user.pw_gid,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def _is_up(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        return self.is_ready()


def _user(names: Sequence[str]) -> pwd.struct_passwd:
    for name in names:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError(f"there is no user {' or '.join(names)} to run a database as")
